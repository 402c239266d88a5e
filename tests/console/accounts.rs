//! Signing up and in: what responses reveal, the limit on attempts, and closed registration.

use std::time::Duration;

use futures_util::future::join_all;
use petstore::api::Network;
use petstore::config::Registration;
use petstore::domain::account::{NewPassword, PasswordDigest};
use petstore::domain::{Email, NewAccount, Secret};
use testkit::console::{PASSWORD, code, form};
use testkit::{ConsoleUser, Response};

use crate::service::{NOW, OPERATOR, Service, Setup};
use crate::users::{ADA, signed_in, staff};

const GRACE: &str = "grace@hopper.example";

/// Hashing takes most of the time. `verification/tests/promises/guessing.rs` measures it.
#[tokio::test]
async fn known_and_unknown_addresses_get_one_response_after_one_hash() {
    let service = Service::start().await;
    ConsoleUser::signed_in(&service, ADA).await;
    let mut somebody = ConsoleUser::new(&service);
    // The account of the fixture has no password.
    let tried = [ADA, "ada@example.com", "nobody@lovelace.example"];
    let mut answers = Vec::new();
    for email in tried {
        let (hashes, version) = (service.api.password_counters.hashed.get(), service.store.version());
        let answer = somebody.post("/sign-in", &[("email", email), ("password", "not the password")]).await;
        answers.push(answer.shown().replace(email, "EMAIL"));
        assert_eq!(service.api.password_counters.hashed.get(), hashes + 1, "{email}");
        assert_eq!(service.store.version(), version, "{email}: nothing is written");
    }
    assert!(answers[0].starts_with("422 ") && answers[0].contains("The e-mail address or the password is wrong."));
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
}

#[tokio::test]
async fn password_and_address_work_in_every_unicode_form() {
    let service = Service::start().await;
    let composed = ("jos\u{e9}@example.com", "Cr\u{e8}me br\u{fb}l\u{e9}e");
    let decomposed = ("jose\u{301}@example.com", "Cre\u{300}me bru\u{302}le\u{301}e");
    let post = async |path: &str, (email, password): (&str, &str)| {
        let before = service.api.password_counters.hashed.get();
        let answer = ConsoleUser::new(&service).post(path, &[("email", email), ("password", password)]).await;
        (answer.status(), service.api.password_counters.hashed.get() - before)
    };
    assert_eq!(post("/sign-up", decomposed).await.0, 303);
    assert_eq!(post("/sign-up", composed).await.0, 422, "the address is taken");
    for email in [composed.0, decomposed.0, "JOS\u{c9}@example.com"] {
        for password in [composed.1, decomposed.1] {
            assert_eq!(post("/sign-in", (email, password)).await, (303, 1), "{email}");
        }
    }

    // The limit on attempts allows more by then.
    service.clock.set(NOW.plus(Duration::from_hours(1)));
    // Early versions hashed what was entered.
    let typed = PasswordDigest(Secret::new(OLD_DIGEST));
    let account = service.store.find_account(&Email::parse(composed.0).unwrap()).await.unwrap().unwrap();
    service.store.set_password(account.id, typed, false, OPERATOR).await.unwrap();
    assert_eq!(post("/sign-in", decomposed).await, (303, 2));
    for email in [composed.0, decomposed.0, "nobody@lovelace.example", "nobody\u{301}@lovelace.example"] {
        assert_eq!(post("/sign-in", (email, "wrong composed \u{e9}")).await, (422, 1), "{email}");
        assert_eq!(post("/sign-in", (email, "wrong decomposed e\u{301}")).await, (422, 2), "{email}");
    }
}

/// Argon2id of the decomposed password, as entered.
const OLD_DIGEST: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$O7oiwvXcOZKPwEkQMkabFA$DT0jgVqxAWGbz+q6x57hWFbIPvMrZP02BdafQ/QfdLw";

#[tokio::test]
async fn sign_up_with_a_taken_address_changes_nothing() {
    let (service, mut ada) = signed_in().await;
    let mut eve = ConsoleUser::new(&service);

    // Even the right password does not sign in by this form.
    for password in ["some other password", PASSWORD] {
        let refused = eve.post("/sign-up", &[("email", "ADA@lovelace.example"), ("password", password)]).await;
        assert_eq!((refused.status(), refused.header("set-cookie")), (422, None), "{}", refused.body);
        let why = "There is already an account with this address. Sign in instead.";
        assert!(refused.body.contains(why) && refused.body.contains(r#"value="ADA@lovelace.example""#));
        assert!(!refused.body.contains(password), "{}", refused.body);
    }

    assert!(ada.is_signed_in().await && !eve.is_signed_in().await);
    eve.sign_in(ADA, PASSWORD).await;
}

#[tokio::test]
async fn suspension_is_told_only_after_the_right_password() {
    let (service, mut ada) = signed_in().await;
    let account = service.account_of(ADA).await;
    service.store.set_suspended(account, true, OPERATOR).await.unwrap();
    assert!(!ada.is_signed_in().await);
    for (password, why) in [
        (PASSWORD, "This account is suspended. Ask the operator of this service."),
        ("not the password", "The e-mail address or the password is wrong."),
    ] {
        let refused = ada.post("/sign-in", &[("email", ADA), ("password", password)]).await;
        assert!(refused.status() == 422 && refused.body.contains(why), "{}", refused.body);
    }

    service.store.set_suspended(account, false, OPERATOR).await.unwrap();
    ada.sign_in(ADA, PASSWORD).await;
}

#[tokio::test]
async fn staff_make_a_link_by_which_the_owner_chooses_a_password() {
    let service = Service::start().await;
    let (mut ada, mut grace) = (staff(&service, ADA).await, ConsoleUser::signed_in(&service, GRACE).await);
    assert_eq!(grace.post("/audit/link", &[("email", ADA)]).await.status(), 403);
    assert_eq!(ada.post("/audit/link", &[("email", "nobody@example.com")]).await.status(), 404);
    assert_eq!(ada.post("/audit/link", &[("email", ADA)]).await.status(), 403, "a link for staff");
    let suspend = async |suspended| {
        service.store.set_suspended(service.account_of(GRACE).await, suspended, OPERATOR).await.unwrap()
    };
    suspend(true).await;
    assert_eq!(ada.post("/audit/link", &[("email", GRACE)]).await.status(), 403, "it would not work");
    suspend(false).await;
    grace.sign_in(GRACE, PASSWORD).await;
    let made = ada.post("/audit/link", &[("email", GRACE)]).await;
    assert_eq!(made.status(), 200, "{}", made.body);
    let link = code(&made.body, "link");
    let path = link.strip_prefix(&format!("http://{}", service.store_address)).unwrap();
    let mut owner = ConsoleUser::new(&service);
    for _ in 0..2 {
        let page = owner.get(path).await;
        assert_eq!((page.status(), page.header("referrer-policy")), (200, Some("strict-origin")));
    }
    assert_eq!(owner.post(path, &[("new", "too short")]).await.status(), 422);
    assert!(grace.is_signed_in().await, "nothing is used up");

    let chosen = owner.post(path, &[("new", "another fine password")]).await;

    assert_eq!((chosen.status(), chosen.header("location")), (303, Some("../sign-in?notice=password-chosen")));
    assert!(!grace.is_signed_in().await);
    let again = [owner.get(path).await, owner.post(path, &[("new", "another fine password")]).await];
    assert!(again.iter().all(|answer| answer.status() == 404 && answer.body.contains("This link was used")));
    let told = owner.get("/sign-in?notice=password-chosen").await;
    assert!(told.body.contains("Your password was changed. Sign in with it."), "{}", told.body);
    grace.sign_in(GRACE, "another fine password").await;
}

#[tokio::test]
async fn temporary_password_leads_to_the_form_of_a_new_one() {
    let (service, mut ada) = signed_in().await;
    let (account, given) = (service.account_of(ADA).await, "a password given by staff");
    let digest = NewPassword::parse(&Secret::new(given)).unwrap().hash();
    service.store.set_password(account, digest, true, OPERATOR).await.unwrap();

    let answer = ada.post("/sign-in", &[("email", ADA), ("password", given)]).await;

    assert_eq!((answer.status(), answer.header("set-cookie")), (303, None));
    let path = answer.header("location").unwrap().trim_start_matches('.').to_owned();
    assert!(ada.get(&path).await.body.contains("<h1>Choose a password</h1>"));
    assert_eq!(ada.post(&path, &[("new", given)]).await.status(), 422, "staff know it");
    assert_eq!(ada.post(&path, &[("new", PASSWORD)]).await.status(), 303);
    ada.sign_in(ADA, PASSWORD).await;
}

#[tokio::test]
async fn too_many_attempts_have_to_wait() {
    let (service, mut ada) = signed_in().await;
    let attempt = async |person: &mut ConsoleUser, email: &str, password: &str| -> Response {
        person.post("/sign-in", &[("email", email), ("password", password)]).await
    };
    // Signing up used one attempt.
    for _ in 1..10 {
        assert_eq!(attempt(&mut ada, ADA, "not the password").await.status(), 422);
    }
    let refused = attempt(&mut ada, "ADA@lovelace.example", PASSWORD).await;
    assert_eq!((refused.status(), refused.header("retry-after")), (429, Some("60")));
    assert!(refused.body.contains("There were too many attempts. Try again in a minute."), "{}", refused.body);

    // Unknown accounts are limited alike, and so is the client's address: to 30 attempts, rejected ones included.
    for attempt_number in 11..30 {
        let email = format!("{attempt_number}@lovelace.example");
        assert_eq!(attempt(&mut ada, &email, PASSWORD).await.status(), 422, "{email}");
    }
    assert_eq!(attempt(&mut ada, "one-more@lovelace.example", PASSWORD).await.status(), 429);
    assert_eq!(ada.post("/sign-up", &[("email", "x@y"), ("password", PASSWORD)]).await.status(), 429);

    service.clock.set(NOW.plus(Duration::from_secs(120)));
    assert_eq!(attempt(&mut ada, ADA, PASSWORD).await.status(), 303);
}

#[tokio::test]
async fn strangers_cannot_use_up_the_attempts_of_a_session() {
    let (service, mut ada) = signed_in().await;
    let mut eve = ConsoleUser::new(&service);
    // The attempts of the account, and of the address.
    for _ in 0..30 {
        eve.post("/sign-in", &[("email", ADA), ("password", "not the password")]).await;
    }
    let changed = ada.post("/account/password", &[("current", PASSWORD), ("new", "another fine password")]).await;
    assert_eq!(changed.status(), 303, "{}", changed.body);

    // Attempts in a session are limited, too.
    for _ in 0..10 {
        let wrong = ada.post("/account/password", &[("current", PASSWORD), ("new", PASSWORD)]).await;
        assert_eq!(wrong.status(), 422, "{}", wrong.body);
    }
    let delete = [("password", "another fine password")];
    let refused = ada.post("/account/delete", &delete).await;
    assert_eq!((refused.status(), refused.header("retry-after")), (429, Some("60")));
    service.clock.set(NOW.plus(Duration::from_secs(60)));
    assert_eq!(ada.post("/account/delete", &delete).await.status(), 303);
}

/// `verification/tests/promises/rate_limit.rs` tries more, also without a trusted proxy.
#[tokio::test]
async fn clients_of_a_trusted_proxy_count_separately() {
    let appended: fn(u32) -> String = |client| format!("[2001:db8:0:{client}::1]:5501");
    let forged: fn(u32) -> String = |client| format!("192.0.2.{client}, unknown");
    let trusted_proxies = vec![Network::parse("127.0.0.0/8").unwrap()];
    let service = Service::start_with(Setup { trusted_proxies, ..Setup::default() }).await;
    for (forwarded, refused) in [(appended, 0), (forged, 1)] {
        let attempts = (0..31).map(async |client| {
            let email = format!("{client}@lovelace.example");
            let request = form(service.store_address, "/sign-in", &[("email", &email), ("password", PASSWORD)]);
            request.header("x-forwarded-for", &forwarded(client)).send().await.status()
        });
        let statuses = join_all(attempts).await;
        assert_eq!(statuses.iter().filter(|status| **status == 429).count(), refused, "{}", forwarded(1));
    }
}

#[tokio::test]
async fn closed_registration_prevents_sign_up_but_not_sign_in() {
    let service = Service::start_with(Setup { registration: Registration::Closed, ..Setup::default() }).await;
    let mut ada = ConsoleUser::new(&service);
    for page in ["/", "/sign-in", "/docs"] {
        let page = ada.get(page).await;
        assert!(page.status() == 200 && !page.body.contains("sign-up"), "{}", page.body);
    }
    assert_eq!(ada.get("/sign-up").await.status(), 403);
    let refused = ada.post("/sign-up", &[("email", ADA), ("password", PASSWORD)]).await;
    assert_eq!(refused.status(), 403);
    assert!(refused.body.contains("Sign-up is closed."), "{}", refused.body);

    let email = Email::parse(ADA).unwrap();
    assert!(service.store.find_account(&email).await.unwrap().is_none());
    let digest = NewPassword::parse(&Secret::new(PASSWORD)).unwrap().hash();
    service.store.create_account(NewAccount::customer(email, Some(digest)), OPERATOR).await.unwrap().unwrap();
    ada.sign_in(ADA, PASSWORD).await;
}
