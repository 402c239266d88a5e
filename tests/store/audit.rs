//! The audit, for both databases. `tests/cli/audit.rs`, `tests/api/audit.rs` and `tests/console/audit.rs` tell who leaves
//! which rows.

use std::net::IpAddr;
use std::time::Duration;

use expect_test::expect;
use petstore::domain::api_key::Rotation;
use petstore::domain::order::TransitionError;
use petstore::domain::{
    AccountId, Actor, ApiKey, AuditEntry, AuditFilter, Deployment, Direction, KeyId, NewAccount, NewOrder, Order,
    OrderQuery, OrderTransition, PageLimit, PageQuery, PetStatus, Role, Timestamp, Transition,
};
use petstore::store::{Outcome, Result, Store};
use testkit::postgres::{self, query};

use crate::fixtures::{
    Executed, NOW, OPERATOR, account, account_at, account_with_password, create_pet, digest, email, key, new_key,
    on_every_database, on_every_database_with_sql, open_postgresql, session,
};

/// A customer with a password, two keys and two orders.
async fn customer(store: &Store, address: &str) -> AccountId {
    let (customer, _) = account_with_password(store, address).await;
    for _ in 0..2 {
        key(store, customer, None).await;
        let pet_id = create_pet(store, "Rex", PetStatus::Available).await.unwrap();
        let order = NewOrder { account: customer, pet_id, now: NOW };
        assert!(store.place_order(order, None).await.unwrap().executed().is_some());
    }
    customer
}

/// All rows, oldest first.
async fn audit(store: &Store) -> Vec<AuditEntry> {
    let page = PageQuery { limit: PageLimit::new(100).unwrap(), ..PageQuery::default() };
    let (entries, more) = store.list_audit(&AuditFilter { since: NOW, ..AuditFilter::default() }, page).await.unwrap();
    assert!(!more);
    entries
}

/// Everything that an audited change changes.
async fn state(store: &Store) -> String {
    let (accounts, keys) = (store.list_accounts().await.unwrap(), store.list_keys().await.unwrap());
    let mut orders = Vec::new();
    store.list_orders(None, &OrderQuery::default(), &mut |order| orders.push(order)).await.unwrap();
    let password =
        store.find_password(&email("grace@example.com")).await.unwrap().map(|(_, digest)| digest.0.expose().to_owned());
    let contents = store.before_reset().await.unwrap();
    format!("{accounts:#?}\n{keys:#?}\n{orders:#?}\n{password:?}\n{contents:?}")
}

/// A successor that replaces a key at once.
fn rotation() -> Rotation {
    Rotation::to(&ApiKey::generate(Deployment::Staging), NOW, Duration::ZERO)
}

/// A member of the staff at a browser.
fn ada() -> Actor {
    Actor {
        at: NOW.plus(Duration::from_secs(1)),
        name: "ada@example.com".into(),
        client_address: Some(IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0xcb00, 0x7107])),
        request_id: Some("r-1".into()),
    }
}

async fn step(
    store: &Store,
    (account, role, actor): (AccountId, Role, Actor),
    order: i64,
    transition: Transition,
) -> Result<Outcome<Order, TransitionError>> {
    let change = OrderTransition { account, role, order, transition, actor: Box::new(actor) };
    store.transition_order(change, None).await
}

/// Every audited change of the store, by `actor`. Returns whether it happened.
async fn change(store: &Store, number: usize, customer: AccountId, actor: Actor) -> Result<bool> {
    let staff = (AccountId(1), Role::Staff, actor.clone());
    let another = ApiKey::generate(Deployment::Staging);
    Ok(match number {
        0 => store.create_account(NewAccount::customer(email("ben@example.com"), None), actor).await?.is_some(),
        1 => store.set_role(customer, Role::Staff, actor).await?,
        2 => store.set_password(customer, digest("new"), false, actor).await?,
        3 => store.change_password(session(customer, NOW), digest("new"), digest("newer"), actor).await?,
        4 => store.create_key(new_key(&another, customer, None), actor).await.map(|_| true)?,
        5 => store.revoke_key(KeyId(1), actor).await?,
        6 => store.rotate_key(KeyId(2), rotation(), actor).await?.is_some(),
        7 => step(store, staff, 1, Transition::Approve).await?.executed().is_some(),
        8 => step(store, staff, 1, Transition::Deliver).await?.executed().is_some(),
        9 => step(store, staff, 2, Transition::Cancel).await?.executed().is_some(),
        10 => store.set_suspended(customer, true, actor).await?,
        11 => store.set_suspended(customer, false, actor).await?,
        12 => store.delete_account(customer, None, actor).await?,
        13 => store.reset(Box::new(std::iter::empty()), actor, || false).await.map(|_| true)?,
        _ => unreachable!(),
    })
}

const CHANGES: usize = 14;

/// A row without what differs between runs.
fn shown(entry: &AuditEntry) -> String {
    let AuditEntry { at, action, actor, subject, client_address, request_id, .. } = entry;
    // On PostgreSQL, an id that a failed change has taken stays unused.
    let subject = [3, 4, 6].iter().fold(subject.clone(), |shown, id| shown.replace(&format!("key {id} "), "key N "));
    let subject: Vec<_> = subject.split('…').enumerate().map(|(n, part)| &part[if n == 0 { 0 } else { 4 }..]).collect();
    let (client, request) = (client_address.as_deref().unwrap_or("-"), request_id.as_deref().unwrap_or("-"));
    format!(
        "{} {action} | {actor} | {} | {client} {request}\n",
        at.as_milliseconds() - NOW.as_milliseconds(),
        subject.join("…")
    )
}

#[test]
fn each_change_leaves_a_row_or_does_not_happen() {
    on_every_database_with_sql(async |store, sql| {
        account(&store, "ada@example.com").await;
        let grace = customer(&store, "grace@example.com").await;
        let before = audit(&store).await.len();
        let mut rows = String::new();
        for number in 0..CHANGES {
            let unchanged = (state(&store).await, audit(&store).await);
            sql("ALTER TABLE audit RENAME COLUMN subject TO elsewhere");

            let refused = change(&store, number, grace, ada()).await;

            assert!(refused.is_err(), "{number}: {refused:?}");
            sql("ALTER TABLE audit RENAME COLUMN elsewhere TO subject");
            assert_eq!((state(&store).await, audit(&store).await), unchanged, "{number} changed something");

            assert!(change(&store, number, grace, ada()).await.unwrap(), "{number}");

            assert_eq!(audit(&store).await.iter().skip(before).map(shown).collect::<String>().find(&rows), Some(0));
            rows = audit(&store).await.iter().skip(before).map(shown).collect();
        }
        expect![[r#"
            1000 account.create | ada@example.com | ben@example.com (customer) | 203.0.113.7 r-1
            1000 account.set_role | ada@example.com | grace@example.com (staff) | 203.0.113.7 r-1
            1000 account.set_password | ada@example.com | grace@example.com | 203.0.113.7 r-1
            1000 account.set_password | ada@example.com | grace@example.com | 203.0.113.7 r-1
            1000 key.create | ada@example.com | key N (pet_test_…) of grace@example.com: test | 203.0.113.7 r-1
            1000 key.revoke | ada@example.com | key 1 (pet_test_…) of grace@example.com: test | 203.0.113.7 r-1
            1000 key.rotate | ada@example.com | key 2 (pet_test_…) to key N (pet_test_…) of grace@example.com: test | 203.0.113.7 r-1
            1000 order.approve | ada@example.com | order 1 of grace@example.com | 203.0.113.7 r-1
            1000 order.deliver | ada@example.com | order 1 of grace@example.com | 203.0.113.7 r-1
            1000 order.cancel | ada@example.com | order 2 of grace@example.com | 203.0.113.7 r-1
            1000 account.suspend | ada@example.com | grace@example.com | 203.0.113.7 r-1
            1000 account.resume | ada@example.com | grace@example.com | 203.0.113.7 r-1
            1000 key.revoke | ada@example.com | key 2 (pet_test_…) of grace@example.com: test | 203.0.113.7 r-1
            1000 key.revoke | ada@example.com | key N (pet_test_…) of grace@example.com: test | 203.0.113.7 r-1
            1000 key.revoke | ada@example.com | key N (pet_test_…) of grace@example.com: test | 203.0.113.7 r-1
            1000 account.delete | ada@example.com | grace@example.com | 203.0.113.7 r-1
            1000 store.reset | ada@example.com | staging | 203.0.113.7 r-1
        "#]]
        .assert_eq(&rows);
    });
}

#[test]
fn change_that_does_not_happen_leaves_no_row() {
    on_every_database(async |store| {
        let (ada_id, grace) = (account(&store, "ada@example.com").await, customer(&store, "grace@example.com").await);
        store.revoke_key(KeyId(1), OPERATOR).await.unwrap();
        let rows = audit(&store).await;
        let by_staff = || (ada_id, Role::Staff, ada());

        let taken = NewAccount::customer(email("GRACE@example.com"), None);
        assert_eq!(store.create_account(taken, ada()).await.unwrap(), None);
        assert!(!store.set_role(AccountId(99), Role::Staff, ada()).await.unwrap());
        assert!(store.set_role(grace, Role::Customer, ada()).await.unwrap(), "she has this role already");
        assert!(!store.set_password(AccountId(99), digest("new"), false, ada()).await.unwrap());
        assert!(!store.set_suspended(AccountId(99), true, ada()).await.unwrap());
        assert!(store.set_suspended(grace, false, ada()).await.unwrap(), "it is not suspended");
        assert!(!store.change_password(session(grace, NOW), digest("wrong"), digest("new"), ada()).await.unwrap());
        let of_nobody = new_key(&ApiKey::generate(Deployment::Staging), AccountId(99), None);
        assert!(store.create_key(of_nobody, ada()).await.is_err());
        assert!(!store.revoke_key(KeyId(99), ada()).await.unwrap());
        let version = store.keys_version().await.unwrap();
        assert!(store.revoke_key(KeyId(1), ada()).await.unwrap(), "it is revoked already");
        assert_eq!(store.keys_version().await.unwrap(), version);
        assert_eq!(store.rotate_key(KeyId(1), rotation(), ada()).await.unwrap(), None);
        assert!(step(&store, by_staff(), 99, Transition::Approve).await.unwrap().executed().is_none());
        assert!(step(&store, by_staff(), 1, Transition::Deliver).await.unwrap().executed().is_none());
        assert!(!store.delete_account(grace, Some(digest("wrong")), ada()).await.unwrap());
        let broken = Box::new(std::iter::once(Err("line 1: broken".to_owned())));
        assert!(store.reset(broken, ada(), || false).await.is_err());
        assert_eq!(audit(&store).await, rows);

        // Staff may approve own orders.
        let own = (grace, Role::Staff, Actor { name: "grace@example.com".into(), ..ada() });
        assert!(step(&store, own, 2, Transition::Approve).await.unwrap().executed().is_some());
        assert_eq!(audit(&store).await, rows);
    });
}

#[test]
fn own_cancellations_leave_rows() {
    on_every_database(async |store| {
        let grace = customer(&store, "grace@example.com").await;
        let before = audit(&store).await.len();
        let by_herself = || Actor { name: "grace@example.com".into(), ..ada() };
        let own = (grace, Role::Customer, by_herself());

        assert!(step(&store, own.clone(), 1, Transition::Cancel).await.unwrap().executed().is_some());
        assert!(step(&store, own, 1, Transition::Cancel).await.unwrap().executed().is_none());
        assert!(store.delete_account(grace, Some(digest("old")), by_herself()).await.unwrap());

        let rows = audit(&store).await;
        let rows: String = rows[before..].iter().map(shown).collect();
        expect![[r#"
            1000 order.cancel | grace@example.com | order 1 of grace@example.com | 203.0.113.7 r-1
            1000 key.revoke | grace@example.com | key 1 (pet_test_…) of grace@example.com: test | 203.0.113.7 r-1
            1000 key.revoke | grace@example.com | key 2 (pet_test_…) of grace@example.com: test | 203.0.113.7 r-1
            1000 order.cancel | grace@example.com | order 2 of grace@example.com | 203.0.113.7 r-1
            1000 account.delete | grace@example.com | grace@example.com | 203.0.113.7 r-1
        "#]]
        .assert_eq(&rows);
    });
}

#[test]
fn audit_is_listed_newest_first_and_deleted_oldest_first() {
    on_every_database(async |store| {
        let at = |second| NOW.plus(Duration::from_secs(second));
        for second in 0..5 {
            account_at(&store, &format!("{second}@example.com"), second).await;
        }
        let list = async |since: Timestamp, after| {
            let page =
                PageQuery { limit: PageLimit::new(2).unwrap(), after, direction: Direction::Descending, status: None };
            let (rows, more) = store.list_audit(&AuditFilter { since, ..AuditFilter::default() }, page).await.unwrap();
            (rows.iter().map(|row| row.id).collect::<Vec<_>>(), more)
        };
        assert_eq!(list(at(2), None).await, (vec![5, 4], true));
        assert_eq!(list(at(2), Some(4)).await, (vec![3], false));

        for deleted in [2, 1, 0] {
            assert_eq!(store.delete_old_audit(at(3), 2).await.unwrap(), deleted);
        }
        let times: Vec<_> = audit(&store).await.iter().map(|row| row.at).collect();
        assert_eq!(times, [at(3), at(4)]);
    });
}

#[test]
fn audit_is_searched_beyond_a_page() {
    on_every_database(async |store| {
        let at = |second| NOW.plus(Duration::from_secs(second));
        let josé = account(&store, "jos\u{e9}@example.com").await;
        for second in 2..=250 {
            if second % 50 == 0 {
                let actor = Actor::command_line(at(second));
                let role = if second % 100 == 0 { Role::Customer } else { Role::Staff };
                assert!(store.set_role(josé, role, actor).await.unwrap());
            } else {
                account_at(&store, &format!("{second}@example.com"), second).await;
            }
        }
        let search = async |filter: &AuditFilter, after, direction| {
            let page = PageQuery { limit: PageLimit::new(2).unwrap(), after, direction, status: None };
            let (rows, more) = store.list_audit(filter, page).await.unwrap();
            (rows.iter().map(|row| row.id).collect::<Vec<_>>(), more)
        };
        use Direction::{Ascending, Descending};
        let of_josé =
            AuditFilter { account: Some(email("JOSE\u{301}@example.com")), since: at(1), ..AuditFilter::default() };
        assert_eq!(search(&of_josé, None, Descending).await, (vec![250, 200], true));
        assert_eq!(search(&of_josé, Some(200), Descending).await, (vec![150, 100], true));
        assert_eq!(search(&of_josé, Some(100), Descending).await, (vec![50], false));
        assert_eq!(search(&of_josé, Some(50), Ascending).await, (vec![100, 150], true));
        let staff = AuditFilter { subject: Some("(staff)".into()), until: Some(at(250)), ..of_josé };
        assert_eq!(search(&staff, None, Ascending).await, (vec![50, 150], false));
        let keys = AuditFilter { action: Some("key".into()), ..AuditFilter::default() };
        assert_eq!(search(&keys, None, Descending).await, (vec![], false));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_that_two_processes_revoke_leaves_one_row() {
    let url = postgres::database();
    let (one, other) = (open_postgresql(&url).await, open_postgresql(&url).await);
    let grace = account(&one, "grace@example.com").await;
    for _ in 0..20 {
        let (id, _) = key(&one, grace, None).await;
        let (first, second) = tokio::join!(one.revoke_key(id, OPERATOR), other.revoke_key(id, ada()));
        assert!(first.unwrap() && second.unwrap());
    }
    assert_eq!(query(&url, "SELECT count(*) FROM audit WHERE action = 'key.revoke'"), "20");
}
