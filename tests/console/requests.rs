//! The pages of the account's API requests.

use std::process::Command;
use std::time::Duration;

use expect_test::expect;
use petstore::domain::Deployment;
use testkit::console::{between, code, unescaped};
use testkit::{ConsoleUser, Request, soon, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::service::{LARGEST, NOW, OPERATOR, REX, Service, Setup};
use crate::users::{ADA, signed_in, signed_in_with_key};

/// The rows of the list at `path`.
async fn rows(user: &mut ConsoleUser, path: &str) -> Vec<String> {
    let page = user.get(path).await;
    assert_eq!(page.status(), 200, "{}", page.body);
    let rows = page.body.split("<tr>").map(|row| row.split("</tr>").next().unwrap());
    rows.filter(|row| row.contains("<th scope=\"row\">")).map(str::to_owned).collect()
}

/// The texts of the rows of the list at `path`, a line each, without what differs between runs.
async fn shown(user: &mut ConsoleUser, path: &str) -> String {
    rows(user, path).await.iter().map(|row| text(row) + "\n").collect()
}

fn text(row: &str) -> String {
    let parts = row.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    let words: Vec<_> = parts.flat_map(str::split_whitespace).collect();
    let shown = words.iter().enumerate().map(|(n, word)| match *word {
        _ if words.get(n + 1) == Some(&"ms") => "#",
        hint if hint.starts_with("pet_") => "KEY",
        id if id.len() == 29 && id[..16].bytes().all(|byte| byte.is_ascii_hexdigit()) => "ID",
        word => word,
    });
    unescaped(&shown.collect::<Vec<_>>().join(" "))
}

/// The page of the latest request in the list.
async fn latest(user: &mut ConsoleUser) -> String {
    let row = rows(user, "/requests").await.remove(0);
    open(user, &row).await
}

/// The page of a request in the list.
async fn open(user: &mut ConsoleUser, row: &str) -> String {
    let page = user.get(&format!("/requests/{}", between(row, "requests/", "\""))).await;
    assert_eq!(page.status(), 200, "{}", page.body);
    page.body
}

#[tokio::test]
async fn latest_requests_of_the_account_are_listed() {
    let (service, mut ada, key) = signed_in_with_key().await;
    let empty = ada.get("/requests").await.body;
    assert!(empty.contains("No requests yet. When a program calls the API with one of your keys"), "{empty}");

    let send = |method: &str, path: &str, id: &str| service.request(method, path).key(&key).header("x-request-id", id);
    assert_eq!(send("GET", "/v1/pets?limit=0", "<first>").send().await.status(), 400);
    service.clock.set(NOW.plus(Duration::from_secs(61)));
    assert_eq!(send("GET", "/v1/pets/77", "second").send().await.status(), 404);
    assert_eq!(send("GET", "/v1/pets", "third").send().await.status(), 200);
    assert_eq!(service.request("GET", "/v1/pets").header("x-request-id", "stranger").send().await.status(), 401);

    let row = rows(&mut ada, "/requests").await.remove(0);
    expect![[r#"
        listPets GET /v1/pets 200 laptop KEY # ms 20 Nov 2026, 09:31:01 UTC third
        getPet GET /v1/pets/77 404 not_found There is no animal with this id. laptop KEY # ms 20 Nov 2026, 09:31:01 UTC second
        listPets GET /v1/pets?limit=0 400 invalid_value `limit` is 0; 1 to 100 are allowed. laptop KEY # ms 20 Nov 2026, 09:30:00 UTC <first>
    "#]].assert_eq(&shown(&mut ada, "/requests").await);
    assert!(row.contains(&format!("pet_test_…{}", &key[43..])), "{row}");
    let link = between(&row, "keys?from=", "\"");
    assert!(ada.get(&format!("/keys?from={link}")).await.body.contains(&key[43..]), "the link leads to the key");

    let mut grace = ConsoleUser::signed_in(&service, "grace@example.com").await;
    let hers = grace.get("/requests").await.body;
    assert!(hers.contains("No requests yet."), "other accounts' requests are not shown: {hers}");
    let path = format!("/requests/{}", between(&row, "requests/", "\""));
    assert_eq!((ada.get(&path).await.status(), grace.get(&path).await.status()), (200, 404));
}

#[tokio::test]
async fn list_is_filtered_by_result_operation_and_key() {
    let (service, mut ada) = signed_in().await;
    let (one, two) = (ada.key("one").await, ada.key("two").await);
    for (key, path) in [(&one, "/v1/pets"), (&one, "/v1/pets/1"), (&two, "/v1/pets"), (&two, "/v1/pets?limit=0")] {
        service.request("GET", path).key(key).send().await;
    }
    let mut told = String::new();
    for query in [
        "",
        "?result=&operation=&key=",
        "?result=successful",
        "?result=failed",
        "?operation=getPet",
        "?key=2",
        "?result=failed&operation=listPets&key=2",
        "?key=99",
    ] {
        let shown = shown(&mut ada, &format!("/requests{query}")).await;
        let paths: Vec<_> = shown.lines().map(|line| line.split(' ').nth(2).unwrap()).collect();
        told += &format!("{query}: {paths:?}\n");
    }
    expect![[r#"
        : ["/v1/pets?limit=0", "/v1/pets", "/v1/pets/1", "/v1/pets"]
        ?result=&operation=&key=: ["/v1/pets?limit=0", "/v1/pets", "/v1/pets/1", "/v1/pets"]
        ?result=successful: ["/v1/pets", "/v1/pets"]
        ?result=failed: ["/v1/pets?limit=0", "/v1/pets/1"]
        ?operation=getPet: ["/v1/pets/1"]
        ?key=2: ["/v1/pets/1", "/v1/pets"]
        ?result=failed&operation=listPets&key=2: []
        ?key=99: []
    "#]]
    .assert_eq(&told);
    let filtered = ada.get("/requests?operation=getPet&key=2").await.body;
    assert!(filtered.contains(r#"<option selected>getPet</option>"#), "{filtered}");
    let tab = r#"requests?result=failed&amp;operation=getPet&#38;key=2""#;
    assert!(filtered.contains(tab), "tabs keep the other filters: {filtered}");
    assert!(ada.get("/requests?key=99").await.body.contains("No requests match."));
    for query in ["result=x", "operation=x", "key=x"] {
        assert_eq!(ada.get(&format!("/requests?{query}")).await.status(), 400, "{query}");
    }
}

#[tokio::test]
async fn page_shows_both_messages_and_a_curl_that_repeats_the_request() {
    let (service, mut ada, key) = signed_in_with_key().await;
    let body = "{\"name\":\"O'Malley $KEY `x` \\\\ \\\"é\\\"\",\"categoryId\":3}";
    let send = |request: Request| request.key(&key).header("idempotency-key", "it's").json(body);
    let sent = send(service.request("POST", "/v1/pets")).send().await;
    assert_eq!(sent.status(), 201, "{}", sent.body);

    let page = latest(&mut ada).await;

    assert!(page.contains("<h1>createPet</h1>"), "{page}");
    let (head, answer) = (code(&page, "request-head"), code(&page, "response-head"));
    assert!(head.starts_with("POST /v1/pets HTTP/1.1\nhost: "), "{head}");
    assert!(head.contains("\nauthorization: [hidden]\n") && head.contains("\nidempotency-key: it's\n"), "{head}");
    assert_eq!((code(&page, "request-body"), code(&page, "response-body")), (body.to_owned(), sent.body.clone()));
    assert!(answer.starts_with("HTTP/1.1 201 Created\ncontent-type: application/json\n"), "{answer}");
    for header in ["location", "x-request-id"] {
        assert!(answer.contains(&format!("\n{header}: {}", sent.header(header).unwrap())), "{answer}");
    }

    // Both a shell of its own and its quoting take part.
    for (operation, expected) in [
        (None, "idempotent-replayed: true"),
        (Some("/v1/pets?limit=2&status=available"), "HTTP/1.1 200 OK"),
        (Some("/v1/pets?name=%5Bx%5D"), "it has limit, status, after."),
    ] {
        if let Some(path) = operation {
            service.request("GET", path).key(&key).send().await;
        }
        let curl = code(&latest(&mut ada).await, "curl");
        assert!(curl.contains(" -H \"Authorization: Bearer $KEY\"") && !curl.contains(&key), "{curl}");
        let command = curl.clone();
        let key = key.clone();
        let shell = move || Command::new("sh").args(["-c", &command]).env("KEY", key).output().unwrap();
        let output = tokio::task::spawn_blocking(shell).await.unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        assert!(output.contains(expected), "{curl}\n{output}");
    }
    assert_eq!(service.store.count_pets().await.unwrap(), 1, "the repeated request was the same");
    assert!(rows(&mut ada, "/requests").await.iter().any(|row| row.contains("badge\">replayed<")));
}

#[tokio::test]
async fn simulated_failures_are_listed() {
    let (service, mut ada, key) = signed_in_with_key().await;
    for (path, preference) in [
        ("/v1/pets", "code=503"),
        ("/v1/pets/1", "date=2030-12-05"),
        ("/v1/pets", "delay=1"),
        ("/v1/pets", "drop=response"),
    ] {
        let stream = TcpStream::connect(service.store_address).await.unwrap();
        let request = service.request("GET", path).key(&key).header("prefer", preference);
        assert_eq!(request.try_send_over(stream).await.is_err(), preference.starts_with("drop"), "{preference}");
    }
    expect![[r#"
        listPets GET /v1/pets 200, incomplete: the connection was closed simulated: drop=response laptop KEY # ms 20 Nov 2026, 09:30:00 UTC ID
        listPets GET /v1/pets 200 simulated: delay=1 laptop KEY # ms 20 Nov 2026, 09:30:00 UTC ID
        getPet GET /v1/pets/1 410 operation_removed This operation was removed on 5 December 2030; list animals with `GET /pets` and its `status` filter. simulated: date=2030-12-05 laptop KEY # ms 20 Nov 2026, 09:30:00 UTC ID
        listPets GET /v1/pets 503 unavailable The service cannot process this request now. Try again later. simulated: code=503 laptop KEY # ms 20 Nov 2026, 09:30:00 UTC ID
    "#]].assert_eq(&shown(&mut ada, "/requests").await);
    assert_eq!(rows(&mut ada, "/requests?result=failed").await.len(), 3, "a lost response is a failure to the client");
    let page = latest(&mut ada).await;
    assert!(page.contains("The connection was closed without a response."), "{page}");
}

#[test]
fn requests_whose_client_gave_up_are_listed() {
    Service::on_every_database(async |service| {
        let mut ada = ConsoleUser::signed_in(service, ADA).await;
        let key = ada.key("laptop").await;
        let create = |preference| service.request("POST", "/v1/pets").key(&key).header("prefer", preference).json(REX);
        let upload = create("handling=lenient").bytes();
        for (sent, received, parts) in [
            (create("delay=30000").bytes(), "", ["201, incomplete: the client closed", "simulated: delay=30000"]),
            (create("pace=1").bytes(), "HTTP/1.1 201", ["201, incomplete: the client closed", "simulated: pace=1"]),
            (create("drop=body").bytes(), "HTTP/1.1 201", ["201, incomplete: the conn", "simulated: drop=body"]),
            (create("drop=request").bytes(), "", ["No response: the connection was", "simulated: drop=request"]),
            (upload[..upload.len() - 5].to_vec(), "", ["invalid_json", "The body could not be read completely."]),
        ] {
            let mut stream = TcpStream::connect(service.store_address).await.unwrap();
            stream.write_all(&sent).await.unwrap();
            if parts[1].contains("delay") {
                // The operation is executed before the delay.
                until(async || service.store.count_pets().await.unwrap() > 0).await;
            } else {
                let mut head = vec![0; received.len()];
                soon(stream.read_exact(&mut head)).await.unwrap();
                assert_eq!(String::from_utf8_lossy(&head), received);
            }
            drop(stream);
            until(async || {
                let shown = rows(&mut ada, "/requests?result=failed").await;
                let row = shown.iter().find(|row| parts.iter().all(|part| text(row).contains(part)));
                let Some(row) = row else { return false };
                let page = open(&mut ada, row).await;
                let is_lost = row.contains("delay=") || row.contains("drop=request");
                assert_eq!(page.contains(" without a response."), is_lost, "{page}");
                true
            })
            .await;
        }
        let shown = shown(&mut ada, "/requests").await;
        assert!(shown.lines().count() == 5 && shown.matches("createPet").count() == 5, "once each: {shown}");
        // A slow response that arrived is a success.
        assert_eq!(create("pace=10000").send().await.status(), 201);
        assert_eq!(rows(&mut ada, "/requests?result=successful").await.len(), 1);
    });
}

#[tokio::test]
async fn wrong_paths_and_methods_are_listed_by_their_paths() {
    let (service, mut ada, key) = signed_in_with_key().await;
    for (method, path, status) in [("GET", "/v1/pet", 404), ("DELETE", "/v1/pets?x=1", 405)] {
        assert_eq!(service.request(method, path).key(&key).send().await.status(), status);
        // Without a valid key, it is nobody's.
        service.request(method, path).send().await;
        service.request(method, path).key("pet_test_x").send().await;
    }
    expect![[r#"
        DELETE /v1/pets?x=[hidden] 405 method_not_allowed This path does not support this method. `Allow` lists those it supports. laptop KEY # ms 20 Nov 2026, 09:30:00 UTC ID
        GET /v1/pet 404 not_found This path does not exist. laptop KEY # ms 20 Nov 2026, 09:30:00 UTC ID
    "#]].assert_eq(&shown(&mut ada, "/requests").await);
    let curl = code(&latest(&mut ada).await, "curl");
    assert!(curl.starts_with("curl -i -X DELETE --globoff 'http://127.0.0.1:"), "{curl}");
}

#[tokio::test]
async fn messages_are_listed_with_their_own_address() {
    let (service, mut ada, key) = signed_in_with_key().await;
    assert_eq!(service.message_request().key(&key).json("{}").send().await.code(), "missing_field");
    let curl = code(&latest(&mut ada).await, "curl");
    assert!(curl.contains(&format!("'http://{}/v1/messages'", service.messages_address)), "{curl}");
}

#[tokio::test]
async fn forms_of_the_console_are_not_listed() {
    let (_service, mut ada) = signed_in().await;
    ada.post("/animals/new", &[("name", "Rex"), ("categoryId", "3"), ("status", "sold")]).await;
    ada.get("/animals").await;
    assert!(ada.get("/requests").await.body.contains("No requests yet."));
}

#[test]
fn requests_with_inactive_keys_are_listed_apart_without_bodies() {
    Service::on_every_database(async |service| {
        let mut ada = ConsoleUser::signed_in(service, ADA).await;
        let revoked = ada.key("old").await;
        let keys = ada.get("/keys").await.body;
        let id = between(&keys, "keys/", "/revoke").rsplit('/').next().unwrap();
        assert_eq!(service.request("GET", "/v1/pets").key(&revoked).send().await.status(), 200);
        ada.post(&format!("/keys/{id}/revoke"), &[]).await;
        let rejected = || service.request("POST", "/v1/pets").key(&revoked).header("user-agent", "old-job").json(REX);
        for _ in 0..25 {
            assert_eq!(rejected().send().await.code(), "invalid_api_key");
        }
        let page = ada.get("/requests").await.body;
        let (own, apart) = page.split_once("<h2>With a revoked or expired key</h2>").unwrap();
        assert_eq!((own.matches("scope=\"row\"").count(), apart.matches("scope=\"row\"").count()), (1, 20));
        assert!(apart.contains(">invalid_api_key<") && apart.contains(">old</a>"), "{apart}");

        let page = open(&mut ada, apart).await;
        assert!(code(&page, "request-head").contains("\nuser-agent: old-job\n"), "{page}");
        assert!(page.contains("The body is not kept") && !page.contains("Rex"), "{page}");

        let (_, expired) = service.another_key(Some(NOW)).await;
        assert_eq!(service.request("GET", "/v1/pets").key(&expired).send().await.status(), 401);
        let kept = service.api.account_requests.of(service.account);
        assert!(kept.len() == 1 && kept[0].owner.is_key_inactive, "{kept:?}");
    });
}

#[tokio::test]
async fn page_shows_the_start_of_long_messages() {
    let (service, mut ada, key) = signed_in_with_key().await;
    let body = format!("{{\"categoryId\":\"{}\"}}", "y".repeat(LARGEST - 40));
    let request = service.request("POST", "/v1/pets").key(&key).header("user-agent", &"z".repeat(20_000));
    assert_eq!(request.json(body).send().await.code(), "missing_field");

    let page = latest(&mut ada).await;

    assert_eq!(page.matches("Only the first 16 KiB are kept.").count(), 2, "{page}");
    assert_eq!((code(&page, "request-head").len(), code(&page, "request-body").len()), (16 * 1024, 16 * 1024));
    assert!(page.contains("There is no curl command"), "{page}");
}

#[test]
fn account_deleted_elsewhere_leaves_no_requests() {
    Service::on_every_database(async |service| {
        let (other, key) = service.another_account("grace@example.com").await;
        for key in [&key, &service.key] {
            assert_eq!(service.request("GET", "/v1/pets").key(key).send().await.status(), 200);
        }
        // As another process does, without telling this one.
        assert!(service.store.delete_account(other, None, OPERATOR).await.unwrap());
        until(async || service.api.account_requests.of(other).is_empty()).await;
        assert_eq!(service.api.account_requests.of(service.account).len(), 1, "only the deleted account's");
    });
}

#[tokio::test]
async fn empty_body_in_chunks_is_shown_as_complete() {
    let (service, mut ada, key) = signed_in_with_key().await;
    for (request, is_complete) in [("GET", true), ("POST", true), ("DELETE", false)] {
        let head = format!("{request} /v1/pets HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n");
        let request = head + "connection: close\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
        testkit::raw(service.store_address, request.as_bytes()).await;
        let page = latest(&mut ada).await;
        assert_eq!(page.contains("id=\"curl\""), is_complete, "{page}");
    }
}

#[tokio::test]
async fn response_to_head_has_no_body() {
    let (service, mut ada, key) = signed_in_with_key().await;
    assert_eq!(service.request("HEAD", "/v1/pets/77").key(&key).send().await.status(), 404);
    let page = latest(&mut ada).await;
    assert!(page.contains("There is no animal with this id.") && !page.contains("id=\"response-body\""), "{page}");
    assert!(code(&page, "curl").starts_with("curl --head 'http://"), "{page}");
}

#[tokio::test]
async fn production_keeps_failed_requests_without_messages() {
    let service = Service::start_with(Setup { deployment: Deployment::Production, ..Setup::default() }).await;
    let mut ada = ConsoleUser::signed_in(&service, ADA).await;
    let empty = ada.get("/requests").await.body;
    assert!(empty.contains("No failed requests.") && empty.contains("only failed requests are kept"), "{empty}");
    let key = ada.key("laptop").await;
    assert_eq!(service.request("POST", "/v1/pets").key(&key).json(REX).send().await.status(), 201);
    assert_eq!(service.request("POST", "/v1/pets").key(&key).json("{").send().await.status(), 400);
    assert_eq!(service.request("GET", &format!("/v1/pets?x={key}")).key(&key).send().await.status(), 400);

    expect![[r#"
        listPets GET /v1/pets?x=[hidden] 400 unknown_parameter This operation has no query parameter `x`; it has limit, status, after. laptop KEY # ms 20 Nov 2026, 09:30:00 UTC ID
        createPet POST /v1/pets 400 invalid_json The body is not JSON: EOF while parsing an object at line 1 column 1. laptop KEY # ms 20 Nov 2026, 09:30:00 UTC ID
    "#]].assert_eq(&shown(&mut ada, "/requests").await);
    assert!(!ada.get("/requests").await.body.contains("href=\"./requests/"));
    let account = service.account_of(ADA).await;
    let kept = service.api.account_requests.of(account);
    assert!(kept.iter().all(|request| request.exchange.is_none()), "{kept:?}");
    assert_eq!(ada.get(&format!("/requests/{}", kept[0].id)).await.status(), 404);
}
