//! Stories about accounts, keys, sessions, stored responses, imports and exports on both databases. `tests/api` tells those
//! about animals.

use std::io::ErrorKind;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use petstore::domain::account::LINK_LIFETIME;
use petstore::domain::api_key::Rotation;
use petstore::domain::idempotency::RETENTION;
use petstore::domain::session::{ABSOLUTE, IDLE, SKEW};
use petstore::domain::{
    AccountId, Actor, ApiKey, Deployment, Direction, IdempotencyKey, KeyId, KeyedRequest, NewAccount, PageLimit, Pet,
    PetStatus, Timestamp,
};
use petstore::store::{ExportError, Outcome, Store, StoreError, StoredResponse, WriteKey};

use crate::fixtures::{
    NOW, OPERATOR, account, account_with_password, animals, create_pet, digest, email, key, message, new_key, new_pet,
    on_every_database, session,
};

#[test]
fn import_is_all_or_nothing() {
    on_every_database(async |store| {
        let broken = (0..50).map(|n| match n {
            49 => Err("line 50: broken".to_owned()),
            n => Ok(new_pet(&n.to_string(), PetStatus::Available)),
        });
        let (import, create) =
            tokio::join!(store.import_pets(Box::new(broken)), store.create_pet(new_pet("Rex", PetStatus::Sold), None));
        assert!(matches!(import, Err(StoreError::Refused(why)) if why == "line 50: broken"));
        create.unwrap();
        assert_eq!(store.count_pets().await.unwrap(), 1);

        assert_eq!(store.import_pets(animals(50)).await.unwrap(), 50);
        assert_eq!(store.count_pets().await.unwrap(), 51);
    });
}

#[test]
fn export_stops_at_an_error() {
    on_every_database(async |store| {
        store.import_pets(animals(250)).await.unwrap();
        let mut shown = 0;
        let mut each = |_: Pet<'_>| {
            shown += 1;
            if shown == 3 { Err(ErrorKind::BrokenPipe.into()) } else { Ok(()) }
        };
        let stopped = store.export_pets(&mut each).await;
        assert!(matches!(stopped, Err(ExportError::Write(error)) if error.kind() == ErrorKind::BrokenPipe));
        assert_eq!(shown, 3);
    });
}

#[test]
fn export_is_ordered_and_holds_no_transaction() {
    on_every_database(async |store| {
        store.import_pets(animals(2_500)).await.unwrap();
        let mut ids = Vec::new();
        let add = || {
            let add = create_pet(&store, "added meanwhile", PetStatus::Sold);
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(add)).unwrap()
        };
        let mut each = |pet: Pet<'_>| {
            if pet.id == 1 {
                assert_eq!(add(), 2_501);
            }
            ids.push(pet.id);
            Ok(())
        };
        let exported = store.export_pets(&mut each).await;
        // A single transaction would not see the last animal.
        assert_eq!(exported.unwrap(), 2_501);
        assert_eq!(ids, (1..=2_501).collect::<Vec<_>>());
    });
}

#[test]
fn write_is_executed_after_its_caller_is_gone() {
    on_every_database(async |store| {
        {
            let mut write = Box::pin(store.create_pet(new_pet("Rex", PetStatus::Sold), None));
            // Queues the write, which a busy machine may commit at once.
            let _ = std::future::poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx))).await;
        }
        // The next write comes after it.
        assert_eq!(create_pet(&store, "Mimi", PetStatus::Sold).await.unwrap(), 2);
        assert_eq!(store.find_pet(1).await.unwrap().unwrap().name, "Rex");
    });
}

#[test]
fn address_is_unique_ignoring_case() {
    on_every_database(async |store| {
        let id = account(&store, "Ädä@Example.com").await;
        let taken = NewAccount::customer(email("äDÄ@EXAMPLE.COM"), Some(digest("new")));
        assert_eq!(store.create_account(taken, OPERATOR).await.unwrap(), None);
        let found = store.find_account(&email("äDä@example.com")).await.unwrap().unwrap();
        assert_eq!((found.id, found.email.as_str(), found.created_at), (id, "Ädä@Example.com", NOW));
        assert_eq!(store.find_account(&email("grace@example.com")).await.unwrap(), None);
    });
}

#[test]
fn key_is_found_by_hash_with_its_state() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let expiry = NOW.plus(Duration::from_secs(60));
        let (id, key) = key(&store, ada, Some(expiry)).await;
        let grant = store.find_key(&key.hash()).await.unwrap().unwrap();
        assert_eq!((grant.id, grant.account, grant.expires_at, grant.last_used_at), (id, ada, Some(expiry), None));
        assert!(!grant.is_revoked);
        assert_eq!(store.find_key(&ApiKey::generate(Deployment::Production).hash()).await.unwrap(), None);

        let before = store.keys_version().await.unwrap();
        assert!(store.revoke_key(id, OPERATOR).await.unwrap());
        assert!(store.keys_version().await.unwrap() > before);
        let grant = store.find_key(&key.hash()).await.unwrap().unwrap();
        assert_eq!((grant.account, grant.is_revoked), (ada, true));

        // The first revocation is kept, and an unknown key is reported.
        assert!(store.revoke_key(id, Actor::command_line(NOW.plus(Duration::from_secs(9)))).await.unwrap());
        assert!(!store.revoke_key(KeyId(id.0 + 1), OPERATOR).await.unwrap());
        let listed = store.list_keys().await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].revoked_at, Some(NOW));
        assert_eq!((listed[0].name.as_str(), listed[0].account.as_str()), ("test", "ada@example.com"));
        assert_eq!(listed[0].hint, key.hint());
    });
}

#[test]
fn rotated_key_passes_on_its_name_preferences_and_lifetime() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let (id, _) = key(&store, ada, Some(NOW.plus(Duration::from_secs(1000)))).await;
        let now = NOW.plus(Duration::from_secs(600));
        let rotation = |now: Timestamp, overlap: u64| {
            Rotation::to(&ApiKey::generate(Deployment::Staging), now, Duration::from_secs(overlap))
        };

        let expiries = async || {
            store.list_keys().await.unwrap().iter().map(|key| (key.id, key.expires_at.unwrap())).collect::<Vec<_>>()
        };
        let (overlapping, end) = (now.plus(Duration::from_secs(100)), now.plus(Duration::from_secs(1000)));
        let successor = store.rotate_key(id, rotation(now, 100), OPERATOR).await.unwrap().unwrap();
        assert_eq!(expiries().await, [(id, overlapping), (successor, end)]);
        let listed = &store.list_keys().await.unwrap()[1];
        let of_successor = (listed.created_at, listed.name.as_str(), listed.prefer.as_deref());
        assert_eq!(of_successor, (now, "test", Some("code=503")));

        // An overlap does not prolong what expires earlier, and a second successor lives as long as the first.
        let second = store.rotate_key(id, rotation(now, 5_000), OPERATOR).await.unwrap().unwrap();
        assert_eq!(expiries().await, [(id, overlapping), (successor, end), (second, end)]);

        assert_eq!(store.rotate_key(id, rotation(overlapping, 9), OPERATOR).await.unwrap(), None, "it has expired");
        store.revoke_key(successor, Actor::command_line(now)).await.unwrap();
        assert_eq!(store.rotate_key(successor, rotation(now, 9), OPERATOR).await.unwrap(), None, "it was revoked");
        assert_eq!(store.rotate_key(KeyId(99), rotation(now, 9), OPERATOR).await.unwrap(), None, "it is unknown");
        assert_eq!(store.list_keys().await.unwrap().len(), 3);
    });
}

#[test]
fn last_use_of_a_key_never_decreases() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let (id, _) = key(&store, ada, None).await;
        let later = NOW.plus(Duration::from_secs(60));
        for used in [NOW, later, NOW] {
            store.touch_keys(vec![(id, used), (KeyId(99), used)]).await.unwrap();
        }
        assert_eq!(store.list_keys().await.unwrap()[0].last_used_at, Some(later));
    });
}

#[test]
fn long_messages_beyond_a_page_are_not_read() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let longest = "🦊".repeat(10_000);
        for _ in 0..14 {
            store.create_message(message(ada, &longest, NOW), None).await.unwrap();
        }
        for direction in [Direction::Ascending, Direction::Descending] {
            let (mut after, mut pages) = (None, Vec::new());
            for _ in 0..2 {
                let limit = PageLimit::new(100).unwrap();
                let (page, more) = store.list_messages_of(ada, direction, after, limit).await.unwrap();
                after = page.last().map(|(message, _)| message.id);
                pages.push((page.len(), more));
            }
            assert_eq!(pages, [(7, true), (7, false)]);
        }
    });
}

#[test]
fn session_is_found_by_hash_until_deleted() {
    on_every_database(async |store| {
        let (ada, digest) = account_with_password(&store, "ada@example.com").await;
        let session = session(ada, NOW);
        assert!(store.create_session(session, digest.clone()).await.unwrap());

        let found = store.find_session(&session.hash).await.unwrap().unwrap();
        assert_eq!((found.account, found.email.as_str(), found.created_at), (ada, "ada@example.com", NOW));
        assert_eq!((found.hash, found.last_used_at, found.account_created_at), (session.hash, NOW, NOW));
        let later = NOW.plus(Duration::from_secs(60));
        for used in [later, NOW] {
            store.touch_session(session.hash, used).await.unwrap();
        }
        assert_eq!(store.find_session(&session.hash).await.unwrap().unwrap().last_used_at, later, "it never decreases");

        store.delete_session(session.hash).await.unwrap();
        assert_eq!(store.find_session(&session.hash).await.unwrap(), None);
    });
}

#[test]
fn session_requires_the_current_password() {
    on_every_database(async |store| {
        let (ada, old) = account_with_password(&store, "ada@example.com").await;
        let found = store.find_password(&email("ADA@example.com")).await.unwrap();
        assert!(found.is_some_and(|(account, kept)| account == ada && kept.0.expose() == old.0.expose()));
        assert!(!store.create_session(session(ada, NOW), digest("another")).await.unwrap());

        account(&store, "cli@example.com").await;
        for none in ["cli@example.com", "nobody@example.com"] {
            assert!(store.find_password(&email(none)).await.unwrap().is_none(), "{none}");
        }
    });
}

#[test]
fn sign_in_deletes_sessions_that_have_ended() {
    on_every_database(async |store| {
        let (ada, digest) = account_with_password(&store, "ada@example.com").await;
        let now = NOW.plus(ABSOLUTE);
        let future = now.plus(SKEW).plus(Duration::from_millis(1));
        for (begun, used, is_kept) in [
            (now.minus(IDLE), now.minus(IDLE), false),
            (now.minus(IDLE), now.minus(IDLE).plus(Duration::from_secs(60)), true),
            (NOW, now, false),
            (now.plus(SKEW), now.plus(SKEW), true),
            (now, future, false),
            (future, future, false),
        ] {
            let session = session(ada, begun);
            assert!(store.create_session(session, digest.clone()).await.unwrap());
            store.touch_session(session.hash, used).await.unwrap();
            store.create_session(crate::fixtures::session(ada, now), digest.clone()).await.unwrap();
            let found = store.find_session(&session.hash).await.unwrap();
            assert_eq!(found.is_some(), is_kept, "begun at {begun}, used at {used}");
        }
    });
}

#[test]
fn deleting_an_account_removes_sessions_and_keys() {
    on_every_database(async |store| {
        assert!(!store.has_accounts().await.unwrap());
        let (ada, password) = account_with_password(&store, "ada@example.com").await;
        assert!(store.has_accounts().await.unwrap());
        let (id, granted) = key(&store, ada, None).await;
        let kept = session(ada, NOW);
        store.create_session(kept, password.clone()).await.unwrap();
        store.create_message(message(ada, "Hi", NOW), None).await.unwrap();
        let version = store.keys_version().await.unwrap();

        assert!(!store.delete_account(ada, Some(digest("another")), OPERATOR).await.unwrap());
        assert!(store.find_key(&granted.hash()).await.unwrap().is_some(), "nothing happened");

        assert!(store.delete_account(ada, Some(password.clone()), OPERATOR).await.unwrap());
        assert!(!store.has_accounts().await.unwrap());
        assert_eq!(store.find_key(&granted.hash()).await.unwrap(), None);
        assert!(store.keys_version().await.unwrap() > version);
        assert_eq!(store.find_session(&kept.hash).await.unwrap(), None);
        assert_eq!(store.find_account(&email("ada@example.com")).await.unwrap(), None);
        assert!(store.find_password(&email("ada@example.com")).await.unwrap().is_none());
        let listed = store.list_keys().await.unwrap();
        assert_eq!((listed[0].id, listed[0].revoked_at), (id, Some(NOW)));
        assert_eq!(listed[0].account.as_str(), format!("deleted-{}@account.invalid", ada.0));

        // Concurrent requests of the deleted account have no effect, and its address can be taken.
        assert!(!store.create_session(session(ada, NOW), password.clone()).await.unwrap());
        assert!(!store.delete_account(ada, Some(password), OPERATOR).await.unwrap());
        let late = ApiKey::generate(store.deployment());
        assert!(matches!(store.create_key(new_key(&late, ada, None), OPERATOR).await, Err(StoreError::Refused(_))));
        assert_ne!(account_with_password(&store, "ada@example.com").await.0, ada);
        let ben = account(&store, "ben@example.com").await;
        for reserved in ["Deleted-1@account.invalid", "ada@example.com:"] {
            let new = NewAccount::customer(email(reserved), None);
            assert_eq!(store.create_account(new, OPERATOR).await.unwrap(), None, "nobody can take {reserved}");
            let changed = store.set_email(ben, email(reserved), OPERATOR).await;
            assert!(matches!(changed, Err(StoreError::Refused(_))), "{changed:?}");
        }
    });
}

#[test]
fn suspended_account_has_no_session_and_its_keys_count_as_revoked() {
    on_every_database(async |store| {
        let (ada, password) = account_with_password(&store, "ada@example.com").await;
        let (_, granted) = key(&store, ada, None).await;
        let before = session(ada, NOW);
        assert!(store.create_session(before, password.clone()).await.unwrap());
        let is_revoked = async || store.find_key(&granted.hash()).await.unwrap().unwrap().is_revoked;
        let suspended_at = async || store.list_accounts().await.unwrap()[0].suspended_at;
        let version = store.keys_version().await.unwrap();

        assert!(store.set_suspended(ada, true, OPERATOR).await.unwrap());

        assert!(store.keys_version().await.unwrap() > version);
        assert!(is_revoked().await);
        assert_eq!(store.find_session(&before.hash).await.unwrap(), None);
        assert!(!store.create_session(session(ada, NOW), password.clone()).await.unwrap());
        let changed = store.change_password(session(ada, NOW), password.clone(), password.clone(), OPERATOR);
        assert!(!changed.await.unwrap());
        assert_eq!(suspended_at().await, Some(NOW));
        let later = Actor::command_line(NOW.plus(Duration::from_secs(9)));
        assert!(store.set_suspended(ada, true, later).await.unwrap());
        assert_eq!(suspended_at().await, Some(NOW), "the first suspension is kept");

        let version = store.keys_version().await.unwrap();
        assert!(store.set_suspended(ada, false, OPERATOR).await.unwrap());

        assert!(store.keys_version().await.unwrap() > version);
        assert!(!is_revoked().await);
        assert_eq!(store.find_session(&before.hash).await.unwrap(), None, "a session does not come back");
        assert!(store.create_session(session(ada, NOW), password).await.unwrap());
        assert_eq!(suspended_at().await, None);
    });
}

#[test]
fn link_sets_a_password_once_within_an_hour() {
    on_every_database(async |store| {
        let (ada, old) = account_with_password(&store, "ada@example.com").await;
        let begun = session(ada, NOW);
        assert!(store.create_session(begun, old.clone()).await.unwrap());
        let until = NOW.plus(LINK_LIFETIME);
        let link = async || {
            let hash = ApiKey::generate(Deployment::Staging).hash();
            assert!(store.create_link(ada, hash, until, None, OPERATOR).await.unwrap());
            hash
        };
        let is_there = async |hash| store.find_link(&hash, NOW).await.unwrap().is_some_and(|found| found.id == ada);
        let replaced = link().await;
        let hash = link().await;
        assert!(!is_there(replaced).await && is_there(hash).await && is_there(hash).await);
        assert_eq!(store.find_link(&hash, until).await.unwrap(), None);
        assert!(!store.use_link(hash, digest("late"), until, OPERATOR).await.unwrap());
        assert!(!store.use_link(replaced, digest("replaced"), NOW, OPERATOR).await.unwrap());
        assert!(store.find_session(&begun.hash).await.unwrap().is_some(), "nothing happened");

        let twice = ["one", "two"].map(|new| store.use_link(hash, digest(new), NOW, OPERATOR));
        let signing_in = store.create_session(session(ada, NOW), old.clone());
        let (used, _) = tokio::join!(join_all(twice), signing_in);

        let used: Vec<_> = used.into_iter().map(Result::unwrap).collect();
        assert!(used == [true, false] || used == [false, true], "{used:?}");
        let kept = store.find_password(&email("ada@example.com")).await.unwrap().unwrap().1;
        assert_eq!(kept.0.expose(), digest(if used[0] { "one" } else { "two" }).0.expose());
        assert_eq!(store.find_session(&begun.hash).await.unwrap(), None);
        assert!(!store.create_session(session(ada, NOW), old).await.unwrap());
        assert!(!is_there(hash).await);

        for end in 0..4 {
            let hash = link().await;
            assert!(match end {
                0 => store.set_password(ada, digest("new"), false, OPERATOR).await.unwrap(),
                1 => store.set_email(ada, email("hopper@example.com"), OPERATOR).await.unwrap(),
                2 => {
                    store.set_suspended(ada, true, OPERATOR).await.unwrap();
                    assert!(!store.create_link(ada, hash, until, None, OPERATOR).await.unwrap());
                    store.set_suspended(ada, false, OPERATOR).await.unwrap()
                }
                _ => store.delete_account(ada, None, OPERATOR).await.unwrap(),
            });
            assert!(!is_there(hash).await && !store.use_link(hash, digest("x"), NOW, OPERATOR).await.unwrap(), "{end}");
        }
        assert!(!store.create_link(ada, hash, until, None, OPERATOR).await.unwrap(), "it is deleted");
    });
}

#[test]
fn temporary_password_begins_no_session_but_a_link() {
    on_every_database(async |store| {
        let (ada, old) = account_with_password(&store, "ada@example.com").await;
        let (until, hash) = (NOW.plus(LINK_LIFETIME), ApiKey::generate(Deployment::Staging).hash());
        let link = async |checked| store.create_link(ada, hash, until, Some(checked), OPERATOR).await.unwrap();
        assert!(!link(old.clone()).await, "the password is not temporary");
        assert!(store.set_password(ada, digest("temporary"), true, OPERATOR).await.unwrap());

        assert!(!store.create_session(session(ada, NOW), digest("temporary")).await.unwrap());
        assert!(!link(old).await && link(digest("temporary")).await);
        assert!(store.use_link(hash, digest("own"), NOW, OPERATOR).await.unwrap());

        assert!(store.create_session(session(ada, NOW), digest("own")).await.unwrap());
        assert!(!link(digest("own")).await);
    });
}

#[test]
fn operator_sets_passwords_and_deletes_accounts_without_one() {
    on_every_database(async |store| {
        let (ada, old) = account_with_password(&store, "ada@example.com").await;
        let grace = account(&store, "grace@example.com").await;
        let listed = store.list_accounts().await.unwrap();
        let listed: Vec<_> = listed.iter().map(|one| (one.id, one.email.as_str(), one.has_password)).collect();
        assert_eq!(listed, [(ada, "ada@example.com", true), (grace, "grace@example.com", false)]);
        let (adas, graces) = (session(ada, NOW), session(grace, NOW));
        store.create_session(adas, old.clone()).await.unwrap();

        let new = digest("new");
        for account in [ada, grace] {
            assert!(store.set_password(account, new.clone(), false, OPERATOR).await.unwrap());
        }

        assert_eq!(store.find_session(&adas.hash).await.unwrap(), None);
        assert!(!store.create_session(session(ada, NOW), old).await.unwrap(), "the old password is gone");
        assert!(store.create_session(graces, new.clone()).await.unwrap());
        let before = store.find_session(&graces.hash).await.unwrap();
        assert!(store.delete_account(ada, None, OPERATOR).await.unwrap());
        assert!(!store.delete_account(ada, None, OPERATOR).await.unwrap(), "it is deleted already");
        assert!(!store.set_password(ada, new, false, OPERATOR).await.unwrap());
        assert!(store.find_password(&email("ada@example.com")).await.unwrap().is_none());
        assert_eq!(store.list_accounts().await.unwrap().len(), 1);
        assert_eq!(store.find_session(&graces.hash).await.unwrap(), before, "other accounts keep their sessions");
    });
}

#[test]
fn expired_records_are_deleted_oldest_first() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        for second in 0..5 {
            create_once(&store, ada, second, NOW.plus(Duration::from_secs(second))).await;
        }
        let expired = NOW.plus(RETENTION).plus(Duration::from_secs(2));
        for (until, limit, deleted) in [(NOW, 100, 0), (expired, 2, 2), (expired, 2, 1), (expired, 2, 0)] {
            assert_eq!(store.delete_expired_responses(until, limit).await.unwrap(), deleted);
        }
        // At a time before all expiries, only the remaining records are found.
        for (second, left) in [(0, false), (1, false), (2, false), (3, true), (4, true)] {
            let outcome = create_once(&store, ada, second, NOW).await;
            assert_eq!(matches!(outcome, Outcome::Replayed(_)), left, "{second}: {outcome:?}");
        }
    });
}

/// Creates an animal once per idempotency key.
async fn create_once(store: &Store, account: AccountId, key: u64, now: Timestamp) -> Outcome<Pet<'static>> {
    let key = IdempotencyKey::parse(key.to_string().as_bytes()).unwrap();
    let request = KeyedRequest::new(account, "createPet", &key, "/v1/pets", "{}", now);
    let key = WriteKey::new(request, |pet: &Pet<'_>| StoredResponse::json(201, pet.id.to_string().into()));
    store.create_pet(new_pet("Rex", PetStatus::Available), Some(key)).await.unwrap()
}
