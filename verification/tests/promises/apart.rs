//! Promise 9: accounts are isolated. No page, form or API operation shows or changes another
//! account's data.

use std::collections::BTreeSet;

use petstore::api::{Operation, Permission};
use petstore::domain::{MessageId, Role};
use testkit::console::{PASSWORD, between};
use testkit::{ConsoleUser, Request, new_message, new_pet, trial};

use crate::service::{OPERATOR, Service};

/// Texts in the data of Ada, which only she may see: her address, the name of her key and her message.
const CANARIES: [&str; 3] = ["canary-ada@lovelace.example", "canary-of-her-key", "canary-of-her-message"];

/// Ada, whose data has the canaries, and Grace, who must not see them.
struct Accounts {
    service: Service,
    ada: ConsoleUser,
    adas_key: String,
    /// The id of her key.
    key_id: String,
    /// The id of her message.
    message: String,
    grace: ConsoleUser,
    graces_key: String,
}

impl Accounts {
    /// On both databases. The animal that Ada has ordered is the only one.
    async fn on_both() -> [Self; 2] {
        [Self::on(Service::start().await).await, Self::on(Service::start_on_postgresql().await).await]
    }

    async fn on(service: Service) -> Self {
        let mut ada = ConsoleUser::signed_in(&service, CANARIES[0]).await;
        // She is staff, so that she can call every operation.
        let account = service.account_of(CANARIES[0]).await;
        assert!(service.store.set_role(account, Role::Staff, OPERATOR).await.unwrap());
        let adas_key = ada.key(CANARIES[1]).await;
        let key_id = ada.key_id().await;
        let sent = ada.post("/messages", &[("message", CANARIES[2])]).await;
        assert_eq!(sent.status(), 202);
        let message = format!("msg_{}", between(&sent.body, "<code>msg_", "</code>"));
        assert!(MessageId::parse(&message).is_some(), "{message}");
        create_pet(&service).await;
        assert_eq!(ada.post("/orders", &[("petId", "1")]).await.status(), 201);
        let mut grace = ConsoleUser::signed_in(&service, "grace@hopper.example").await;
        let graces_key = grace.key("grace's").await;
        Self { service, ada, adas_key, key_id, message, grace, graces_key }
    }
}

#[tokio::test]
async fn no_page_shows_anothers_data() {
    let mut figures = Vec::new();
    for Accounts { service, mut ada, adas_key, key_id: id, message, mut grace, .. } in Accounts::on_both().await {
        let hint = &adas_key[adas_key.len() - 4..];
        let starts = [
            "/".to_owned(),
            format!("/keys/{id}/rotate"),
            format!("/keys/{id}/revoke"),
            format!("/messages?before={message}"),
            "/messages?before=msg_ffffffffffffffffffffffffffffffff".into(),
            "/account?notice=password-changed".into(),
        ];

        // Control: Ada finds them all on the same pages.
        let (seen, _) = crawl(&mut ada, &starts).await;
        assert!(CANARIES.iter().all(|canary| seen.contains(canary)) && seen.contains(hint));
        let (seen, pages) = crawl(&mut grace, &starts).await;
        assert!(!has_canary(&seen), "a page shows Ada's data to Grace");
        figures.push(format!("{}: {pages} pages", service.store.database()));
    }
    trial::measured(&format!("{}; 0 leaks", figures.join("; ")));
}

#[tokio::test]
async fn no_form_changes_anothers_data() {
    let mut figures = Vec::new();
    for Accounts { service, adas_key, key_id: id, mut grace, .. } in Accounts::on_both().await {
        let forms: [(String, &[(&str, &str)]); 7] = [
            (format!("/keys/{id}/rotate"), &[("overlap", "0s")]),
            (format!("/keys/{id}/revoke"), &[]),
            (format!("/keys/0{id}/revoke"), &[]),
            (format!("/keys/{id}%00/revoke"), &[]),
            ("/orders/1/cancel".into(), &[]),
            ("/orders/1/approve".into(), &[]),
            ("/orders/1/deliver".into(), &[]),
        ];
        for (path, fields) in &forms {
            let response = grace.post(path, fields).await;
            let is_for_staff = path.ends_with("/approve") || path.ends_with("/deliver");
            assert_eq!(response.status(), if is_for_staff { 403 } else { 404 }, "{path}");
            assert!(!has_canary(&response.body), "{path}");
        }
        // Ada's key works, and her order is as it was.
        let order = service.request("GET", "/v1/store/orders/1").key(&adas_key).send().await;
        assert_eq!(order.json()["status"], "placed", "{}", order.shown());
        figures.push(format!("{}: {} forms", service.store.database(), forms.len()));
    }
    trial::measured(&format!("{}; 0 leaks", figures.join("; ")));
}

#[tokio::test]
async fn similar_session_token_signs_nobody_in() {
    for Accounts { service, ada, .. } in Accounts::on_both().await {
        let cookie = ada.cookie.unwrap();
        let (name, token) = cookie.split_once('=').unwrap();
        let other_first = if token.starts_with('a') { "b" } else { "a" };
        let similar =
            [format!("{other_first}{}", &token[1..]), token[1..].into(), token.to_uppercase() + "x", "".into()];
        for token in similar {
            let mut forger = ConsoleUser { cookie: Some(format!("{name}={token}")), ..ConsoleUser::new(&service) };
            assert!(!forger.is_signed_in().await, "{token}");
        }
    }
    trial::measured("no similar session token signs anybody in");
}

#[tokio::test]
async fn no_operation_shows_or_changes_anothers_data() {
    let mut figures = Vec::new();
    for Accounts { service, adas_key, graces_key, .. } in Accounts::on_both().await {
        // Ada creates one of everything, and Grace requests all of it.
        for _ in 0..40 {
            create_pet(&service).await;
        }
        for operation in Operation::documented().filter(|operation| !reads(*operation) && !has_id(*operation)) {
            let created = request(&service, operation, "").key(&adas_key).send().await;
            assert!(created.head.status.is_success(), "{}", created.shown());
        }
        // Reads come first, because writes would give Grace data of her own.
        let mut private: Vec<_> = Operation::documented().filter(|operation| !is_shared(*operation)).collect();
        private.sort_by_key(|operation| !reads(*operation));
        let mut requests = 0;
        for operation in &private {
            for id in ["1", "2", "3"] {
                let response = request(&service, *operation, id).key(&graces_key).send().await;
                let shown = response.shown();
                match (has_id(*operation), reads(*operation)) {
                    (true, _) if operation.permission() == Permission::Staff => assert_eq!(response.status(), 403),
                    (true, _) => assert_eq!(response.status(), 404, "{operation:?}: {shown}"),
                    (false, true) => assert_eq!(response.body, "[]", "{operation:?}: {shown}"),
                    (false, false) => assert!(!has_canary(&shown), "{operation:?}: {shown}"),
                }
                requests += 1;
            }
        }

        // Control: Ada reaches each of them, and her order is unchanged.
        let mut found = 0;
        for operation in private.into_iter().filter(|operation| has_id(*operation)) {
            let response = request(&service, operation, "1").key(&adas_key).send().await;
            assert!([200, 409].contains(&response.status()), "{operation:?}: {}", response.shown());
            found += usize::from(response.status() == 200);
        }
        assert!(found > 0, "none of Ada's orders changed its state");
        figures.push(format!("{}: {requests} requests to the API", service.store.database()));
    }
    trial::measured(&format!("{}; 0 leaks", figures.join("; ")));
}

#[tokio::test]
async fn deleted_account_leaves_the_others() {
    for Accounts { service, mut ada, adas_key, mut grace, graces_key, .. } in Accounts::on_both().await {
        create_pet(&service).await;
        assert_eq!(grace.post("/orders", &[("petId", "2")]).await.status(), 201);
        assert_eq!(grace.post("/messages", &[("message", "Hello")]).await.status(), 202);
        let deleted = grace.post("/account/delete", &[("password", PASSWORD)]).await;
        assert_eq!(deleted.status(), 303, "{}", deleted.body);
        assert_eq!(service.request("GET", "/v1/pets").key(&graces_key).send().await.status(), 401);
        assert_eq!(service.request("GET", "/v1/pets").key(&adas_key).send().await.status(), 200);
        assert!(ada.get("/keys").await.body.contains(CANARIES[1]));
        assert!(ada.get("/messages").await.body.contains(CANARIES[2]));
    }
    trial::measured("a deleted account leaves the others");
}

fn has_canary(text: &str) -> bool {
    CANARIES.iter().any(|canary| text.contains(canary))
}

async fn create_pet(service: &Service) {
    assert_eq!(service.post("/v1/pets", &new_pet("Rex")).await.status(), 201);
}

/// Opens these pages and every page of this site that they link to. Returns their text and their number.
async fn crawl(user: &mut ConsoleUser, starts: &[String]) -> (String, usize) {
    let mut waiting = starts.to_vec();
    let mut opened = BTreeSet::new();
    let mut seen = String::new();
    while let Some(path) = waiting.pop() {
        // The API reference is public.
        if path.starts_with("/docs/") || !opened.insert(path.clone()) {
            continue;
        }
        assert!(opened.len() < 500, "the pages never end");
        let page = user.get(&path).await;
        assert!(page.status() < 500, "{path}: {}", page.body);
        let links = ["href=\"", "action=\""].iter().flat_map(|attribute| page.body.split(attribute).skip(1));
        waiting.extend(links.filter_map(|rest| resolve(&path, rest.split('"').next()?)));
        seen += &page.body;
    }
    (seen, opened.len())
}

/// Resolves a link on a page. `None` if it leads to another site or to a part of the same page.
fn resolve(page: &str, link: &str) -> Option<String> {
    if link.contains(':') || link.starts_with("//") || link.starts_with('#') {
        return None;
    }
    if link.starts_with('/') {
        return Some(link.to_owned());
    }
    let path = page.split('?').next().unwrap();
    if let Some(query) = link.strip_prefix('?') {
        return Some(format!("{path}?{query}"));
    }
    let mut parts: Vec<&str> = path.split('/').skip(1).collect();
    parts.pop();
    let (link, query) = link.split_once('?').map_or((link, String::new()), |(link, query)| (link, format!("?{query}")));
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    Some(format!("/{}{query}", parts.join("/").trim_end_matches('.')))
}

/// A request to an operation on the resource `id`, with an example body.
fn request(service: &Service, operation: Operation, id: &str) -> Request {
    let request = service.request_to(operation, id);
    match operation {
        Operation::CreatePet => request.json(new_pet("Rex")),
        Operation::PlaceOrder => request.json(r#"{"petId":7}"#),
        Operation::SendMessage => request.json(new_message("Hello")),
        _ => request,
    }
}

fn has_id(operation: Operation) -> bool {
    operation.path().contains('{')
}

/// Animals belong to no account.
fn is_shared(operation: Operation) -> bool {
    operation.path().starts_with("/v1/pets")
}

fn reads(operation: Operation) -> bool {
    operation.method() == "GET"
}
