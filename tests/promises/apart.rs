//! Promise 9: accounts are apart. What one account has, another neither sees nor touches: in the console, wherever its
//! links and forms lead, nor with its key, whatever operation the document has.

use std::collections::BTreeSet;

use petstore::domain::MessageId;
use petstore::http::parse_new_pet;
use serde_json::Value;
use testkit::console::{PASSWORD, between};
use testkit::{ConsoleUser, Request, postgres, trial};

use crate::service::{Service, Setup};

/// What only Ada may see: each stands in one of her things.
const CANARIES: [&str; 3] = ["canary-ada@lovelace.example", "canary-of-her-key", "canary-of-her-message"];

#[tokio::test]
async fn accounts_neither_see_nor_change_each_others_data() {
    let postgres = Some(postgres::database());
    let mut figures = Vec::new();
    for setup in [Setup::default(), Setup { postgres, ..Setup::default() }] {
        let service = Service::start_with(setup).await;
        let mut ada = ConsoleUser::signed_in(&service, CANARIES[0]).await;
        let adas = ada.key(CANARIES[1]).await;
        let id = ada.key_id().await;
        let hint = &adas[adas.len() - 4..];
        let sent = ada.post("/messages", &[("message", CANARIES[2])]).await;
        assert_eq!(sent.status(), 202);
        let message = format!("msg_{}", between(&sent.body, "<code>msg_", "</code>"));
        assert!(MessageId::parse(&message).is_some(), "{message}");

        let pet = parse_new_pet(r#"{"name":"Rex","categoryId":3}"#).unwrap();
        service.store.create_pet(pet, None).await.unwrap();
        assert_eq!(ada.post("/orders", &[("petId", "1")]).await.status(), 201);

        let mut grace = ConsoleUser::signed_in(&service, "grace@hopper.example").await;
        let graces = grace.key("grace's").await;
        let starts = [
            "/".to_owned(),
            format!("/keys/{id}/rotate"),
            format!("/keys/{id}/revoke"),
            format!("/messages?before={message}"),
            "/messages?before=msg_ffffffffffffffffffffffffffffffff".into(),
            "/account?notice=password-changed".into(),
        ];

        // The control: whose they are finds them all by the same way.
        let (seen, _) = crawl(&mut ada, &starts).await;
        assert!(CANARIES.iter().all(|canary| seen.contains(canary)) && seen.contains(hint));
        let (seen, pages) = crawl(&mut grace, &starts).await;
        assert!(!CANARIES.iter().any(|canary| seen.contains(canary)), "a page shows what is Ada's");

        let of_one: [(String, &[(&str, &str)]); 7] = [
            (format!("/keys/{id}/rotate"), &[("overlap", "0s")]),
            (format!("/keys/{id}/revoke"), &[]),
            (format!("/keys/0{id}/revoke"), &[]),
            (format!("/keys/{id}%00/revoke"), &[]),
            ("/orders/1/cancel".into(), &[]),
            ("/orders/1/approve".into(), &[]),
            ("/orders/1/deliver".into(), &[]),
        ];
        for (path, fields) in &of_one {
            let answer = grace.post(path, fields).await;
            assert_eq!(answer.status(), 404, "{path}");
            assert!(!CANARIES.iter().any(|canary| answer.body.contains(canary)), "{path}");
        }

        // A session's token is no more than what it is: another one, however near, is nobody's.
        let adas_cookie = ada.cookie.clone().unwrap();
        let (name, token) = adas_cookie.split_once('=').unwrap();
        let near = token.chars().map(|c| if c == 'a' { 'b' } else { 'a' }).take(1).chain(token.chars().skip(1));
        for token in [near.collect(), token[1..].to_owned(), token.to_uppercase() + "x", String::new()] {
            let mut forger = ConsoleUser { cookie: Some(format!("{name}={token}")), ..ConsoleUser::new(&service) };
            assert!(!forger.is_signed_in().await, "{token}");
        }

        // With the key: Ada does whatever makes something, and Grace asks for all of it.
        for _ in 0..40 {
            let pet = parse_new_pet(r#"{"name":"Rex","categoryId":3}"#).unwrap();
            service.store.create_pet(pet, None).await.unwrap();
        }
        let operations = operations(&service).await;
        for operation in operations.iter().filter(|operation| operation.method == "POST" && !operation.is_of_one()) {
            let made = operation.request(&service, "1").key(&adas).send().await;
            assert!(made.head.status.is_success(), "{}", made.shown());
        }
        let mut asked = 0;
        for operation in operations.iter().filter(|operation| !operation.is_everybodys()) {
            for id in ["1", "2", "3"] {
                let answer = operation.request(&service, id).key(&graces).send().await;
                let shown = answer.shown();
                match (operation.is_of_one(), operation.method.as_str()) {
                    (true, _) => assert_eq!(answer.status(), 404, "{}: {shown}", operation.path),
                    (false, "GET") => assert_eq!(answer.body, "[]", "{}: {shown}", operation.path),
                    (false, _) => assert!(!CANARIES.iter().any(|canary| shown.contains(canary)), "{shown}"),
                }
                asked += 1;
            }
        }

        // The control: whose they are gets an answer to each, and finds her order as it was.
        let mut found = 0;
        for operation in operations.iter().filter(|operation| operation.is_of_one() && !operation.is_everybodys()) {
            let answer = operation.request(&service, "1").key(&adas).send().await;
            assert!([200, 409].contains(&answer.status()), "{}: {}", operation.path, answer.shown());
            found += usize::from(answer.status() == 200);
        }
        assert!(found > 0, "none of her orders could be moved along");

        // Whatever Grace does to her own account leaves Ada's as it was.
        let deleted = grace.post("/account/delete", &[("password", PASSWORD)]).await;
        assert_eq!(deleted.status(), 303, "{}", deleted.body);
        assert_eq!(service.request("GET", "/v1/pets").key(&graces).send().await.status(), 401);
        assert_eq!(service.request("GET", "/v1/pets").key(&adas).send().await.status(), 200);
        assert!(ada.get("/keys").await.body.contains(CANARIES[1]));
        assert!(ada.get("/messages").await.body.contains(CANARIES[2]));
        figures.push(format!(
            "{}: {pages} pages, {} forms, {asked} requests to the API",
            service.store.database(),
            of_one.len()
        ));
    }
    trial::measured(&format!("{}; 0 leaks", figures.join("; ")));
}

/// Opens these pages and all they link to on this site, and puts together what they show; says how many there were.
async fn crawl(person: &mut ConsoleUser, starts: &[String]) -> (String, usize) {
    let mut waiting = starts.to_vec();
    let mut opened = BTreeSet::new();
    let mut seen = String::new();
    while let Some(path) = waiting.pop() {
        // The files of the API reference are everybody's.
        if path.starts_with("/docs/") || !opened.insert(path.clone()) {
            continue;
        }
        assert!(opened.len() < 500, "the pages never end");
        let answer = person.get(&path).await;
        assert!(answer.status() < 500, "{path}: {}", answer.body);
        let links = ["href=\"", "action=\""].iter().flat_map(|attribute| answer.body.split(attribute).skip(1));
        waiting.extend(links.filter_map(|rest| resolve(&path, rest.split('"').next()?)));
        seen += &answer.body;
    }
    (seen, opened.len())
}

/// Where a relative link leads from a page; nothing where it leads elsewhere.
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

/// An operation of the document.
struct Operation {
    method: String,
    path: String,
    body: Option<String>,
}

impl Operation {
    /// Whether it is about one thing, whose id is in its path.
    fn is_of_one(&self) -> bool {
        self.path.contains('{')
    }

    /// The animals belong to no account.
    fn is_everybodys(&self) -> bool {
        self.path.starts_with("/pets")
    }

    fn request(&self, service: &Service, id: &str) -> Request {
        let door = if self.path == "/messages" { service.messages_address } else { service.store_address };
        let parts = self.path.split('/').map(|part| if part.starts_with('{') { id } else { part });
        let path = format!("/v1{}", parts.collect::<Vec<_>>().join("/"));
        let request = Request::new(door, &self.method, &path);
        match &self.body {
            Some(body) => request.json(body.clone()),
            None => request,
        }
    }
}

/// The operations of the document, those that read before those that write.
async fn operations(service: &Service) -> Vec<Operation> {
    let document: Value = service.get("/openapi.json").await.json();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, value) in item.as_object().unwrap().iter().filter(|(_, value)| value["operationId"].is_string()) {
            let body = value.pointer("/requestBody/content/application~1json/example").map(Value::to_string);
            operations.push(Operation { method: method.to_uppercase(), path: path.clone(), body });
        }
    }
    assert!(operations.len() >= 4, "the document lists too little");
    operations.sort_by_key(|operation| operation.method != "GET");
    operations
}
