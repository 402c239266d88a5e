//! Strict parsing: the query, the JSON of a body, and its fields.

use expect_test::expect;
use petstore::api::Operation;
use serde_json::json;
use testkit::{Request, Response};

use crate::service::{HELLO, Service};

#[tokio::test]
async fn query_is_parsed_strictly() {
    let service = Service::start().await;
    let id = service.message(HELLO).await.json()["id"].as_str().unwrap().to_owned();
    let (bare, short, upper) = (format!("={}", &id[4..]), format!("={}", &id[..35]), format!("={}", id.to_uppercase()));
    let values = |operation, parameter, values: &[&str]| {
        let queries = values.iter().map(|value| (operation, format!("{parameter}{value}"), format!("`{parameter}`")));
        queries.collect::<Vec<_>>()
    };
    let limits = ["=0", "=101", "=256", "=-1", "=", "", "=abc", "=3.0", "=%2B3", "=%203", "=3%00", "=%D9%A3", "=%FF"];
    for (operation, query, named) in [
        values(Operation::ListPets, "limit", &limits),
        values(Operation::ListPets, "status", &["=", "=Available", "=available%20", "=available,sold", "=lost", "=0"]),
        values(
            Operation::ListPets,
            "after",
            &["=", "=x", "=-", "=--1", "=1e0", "=3%20", "=+1", "=9223372036854775808", "=-9223372036854775809"],
        ),
        values(Operation::ListOrders, "limit", &["=101"]),
        values(Operation::ListOrders, "status", &["=sold", "=Placed"]),
        values(Operation::ListOrders, "after", &["=x"]),
        values(Operation::ListMessages, "limit", &["="]),
        values(Operation::ListMessages, "after", &["=1", &bare, &short, &upper]),
    ]
    .concat()
    {
        assert_rejected(&service, operation, &query, "invalid_value", &named).await;
    }
    let twice = format!("after={id}&after={id}");
    for (operation, query, named) in [
        (Operation::ListPets, "Limit=3", "`Limit`"),
        (Operation::ListPets, "limit[]=3", "`limit[]`"),
        (Operation::ListPets, "limit=3&page=2", "`page`"),
        (Operation::ListPets, "=3", "``"),
        (Operation::ListPets, "limit=3&limit=3", "`limit`"),
        (Operation::ListPets, "limit=3&l%69mit=4", "`limit`"),
        (Operation::ListPets, "after=1&limit=3&after=2", "`after`"),
        (Operation::ListMessages, &twice, "`after`"),
        (Operation::ListMessages, "status=queued", "`status`"),
        (Operation::ListPets, &"x".repeat(300), &format!("`{}…`", "x".repeat(40))),
    ] {
        assert_rejected(&service, operation, query, "unknown_parameter", named).await;
    }
}

async fn assert_rejected(service: &Service, operation: Operation, query: &str, code: &str, named: &str) {
    let answer = service.request_to_query(operation, "", &format!("?{query}")).key(&service.key).send().await;
    assert_eq!(answer.code(), code, "{query}");
    assert!(message(&answer).contains(named), "{query}: {}", answer.body);
}

#[test]
fn unknown_and_invalid_ids_are_not_found() {
    Service::with_pets_on_every_database(1, async |service| {
        service.order(&service.key, 1).send().await;
        for id in [
            "2", "0", "-1", "-9223372036854775808", "9223372036854775808", "abc", "1.0", "+1", "0x1", "%201", "%31x",
            "%D9%A1", "%FF", "-", "--1", "1%20", "1e0",
        ] {
            assert_eq!(service.get(&format!("/v1/pets/{id}")).await.code(), "not_found", "{id}");
            for answer in [
                service.get(&format!("/v1/store/orders/{id}")).await,
                service.post(&format!("/v1/store/orders/{id}/approve"), "").await,
            ] {
                let expected = r#"{"code":"not_found","message":"You have no order with this id.","status":404}"#;
                assert_eq!(answer.body, expected, "{id}");
            }
        }
        assert_eq!(service.post("/v1/store/orders/%31/approve", "").await.json()["status"], "approved");
    });
}

#[tokio::test]
async fn error_lists_what_is_allowed() {
    let service = Service::start().await;
    let mut messages = String::new();
    for query in ["limit=0", "limit=x", "status=lost", "after=x", "colour=red"] {
        messages += &format!("{}\n", message(&service.get(&format!("/v1/pets?{query}")).await));
    }
    for (name, category, status) in [
        (r#""Rex""#, r#""3""#, "sold"),
        (r#""Rex""#, "null", "sold"),
        (r#""Rex""#, "18446744073709551616", "sold"),
        (r#""Rex""#, "3", "lost"),
        (r#""""#, "3", "sold"),
        (r#""a\u0007""#, "3", "sold"),
    ] {
        let body = format!(r#"{{"name":{name},"categoryId":{category},"status":"{status}"}}"#);
        messages += &format!("{}\n", message(&service.post("/v1/pets", &body).await));
    }
    messages += &message(&service.message(r#"{"message":""}"#).await);
    expect![[r#"
        `limit` is 0; 1 to 100 are allowed.
        `limit` must be an integer: digits with an optional minus sign, within 64 bits.
        `status` must be one of available, pending, sold.
        `after` must be an integer: digits with an optional minus sign, within 64 bits.
        This operation has no query parameter `colour`; it has limit, status, after.
        `categoryId` must be an integer, not a string.
        `categoryId` must be an integer, not null.
        `categoryId` must be an integer from -9223372036854775808 to 9223372036854775807.
        `status` must be one of available, pending, sold.
        `name` has 0 characters; 1 to 255 are allowed.
        `name` has the control character U+0007, which is not allowed.
        `message` has 0 characters; 1 to 10,000 are allowed."#]]
    .assert_eq(&messages);
}

#[tokio::test]
async fn body_must_be_a_json_object() {
    let service = Service::start().await;
    let deep = format!(r#"{{"name":"Rex","categoryId":3,"other":{}"#, "[".repeat(30_000));
    let animals: [&[u8]; 7] = [
        b"",
        b"[{\"name\":\"Rex\",\"categoryId\":3}]",
        b"{\"name\":\"R\xffx\",\"categoryId\":3}",
        b"{\"name\":\"R\xed\xa0\x80x\",\"categoryId\":3}",
        b"name=Rex&categoryId=3",
        b"{\"name\":\"Rex\",\"categoryId\":3,\"status\":\"sold\",\"status\":\"sold\"}",
        deep.as_bytes(),
    ];
    let messages: [&[u8]; 4] = [b"", b"[]", b"{\"message\":\"\xff\"}", br#"{"message":"a","messag\u0065":"b"}"#];
    let animals = animals.map(|body| service.call("POST", "/v1/pets").json(body));
    let messages = messages.map(|body| service.message_request().key(&service.key).json(body));
    for request in animals.into_iter().chain(messages) {
        let shown = String::from_utf8_lossy(&request.bytes()).into_owned();
        assert_eq!(request.send().await.code(), "invalid_json", "{shown:.200}");
    }
    assert_eq!(service.get("/v1/pets").await.json(), json!([]));
}

/// Proxies that receive HTTP/2 announce a body in chunks even for requests without one.
#[tokio::test]
async fn body_announced_in_chunks_may_be_empty() {
    let service = Service::with_pets(1).await;
    assert_eq!(service.order(&service.key, 1).send().await.status(), 201);
    let send = async |method: &str, path: &str, body: &str, content_type: &str| {
        let key = &service.key;
        let head =
            format!("host: x\r\nauthorization: Bearer {key}\r\n{content_type}transfer-encoding: chunked\r\n\r\n");
        let next = "GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let requests = format!("{method} {path} HTTP/1.1\r\n{head}{body}0\r\n\r\n{next}");
        let answers = testkit::raw(service.store_address, requests.as_bytes()).await;
        (answers[9..12].to_owned(), answers.matches("HTTP/1.1 ").count())
    };
    for (method, path, status, answers) in [
        ("GET", "/v1/pets?limit=1", "200", 2),
        ("HEAD", "/v1/pets", "200", 2),
        ("GET", "/v1/pets/1", "200", 2),
        ("GET", "/v1/store/orders/1", "200", 2),
        ("POST", "/v1/store/orders/1/approve", "200", 2),
        ("POST", "/v1/store/orders/1/cancel", "200", 2),
        ("POST", "/v1/pets", "400", 2),
    ] {
        assert_eq!(send(method, path, "", "").await, (status.to_owned(), answers), "{method} {path}");
        assert_eq!(send(method, path, "2\r\n{}\r\n", "").await, ("415".to_owned(), 1), "{method} {path}");
    }
    let json = send("GET", "/v1/pets", "2\r\n{}\r\n", "content-type: application/json\r\n").await;
    assert_eq!(json, ("200".to_owned(), 2));
}

#[tokio::test]
async fn missing_field_is_named() {
    let service = Service::start().await;
    for (named, bodies) in [
        ("`name`", &["{}", r#"{"categoryId":3}"#, r#"{"Name":"Rex","categoryId":3}"#][..]),
        ("`name`", &[r#"{"\ud800":"Rex","categoryId":3}"#]),
        ("`categoryId`", &[r#"{"name":"Rex","status":"sold"}"#, r#"{"name":"Rex","categoryid":3}"#]),
        ("`message`", &["{}", r#"{"Message":"Hello"}"#]),
    ] {
        for body in bodies {
            let answer =
                if named == "`message`" { service.message(body).await } else { service.post("/v1/pets", body).await };
            assert_eq!(answer.code(), "missing_field", "{body}");
            assert!(message(&answer).contains(named), "{body}: {}", answer.body);
        }
    }
}

#[tokio::test]
async fn field_of_wrong_type_or_value_is_named() {
    let service = Service::start().await;
    let (long, huge) = (format!("{:?}", "ä".repeat(256)), format!("{:?}", "x".repeat(10_001)));
    for (field, values) in [
        ("categoryId", &[r#""3""#, "3.5", "true", "null", "[3]", "{}", "1e999", "9223372036854775808"][..]),
        ("name", &["3", "null", "true", "[]", "{}", r#""""#, r#"" ""#, r#""\u00a0\u3000""#, &long]),
        ("name", &[r#""a\u0000b""#, r#""a\nb""#, r#""\u007f""#, r#""a\u009fb""#, r#""\ud800b""#, r#""\udc00\ud800""#]),
        ("status", &["null", "0", "true", r#"["sold"]"#, r#""""#, r#""SOLD""#, r#"" sold""#, r#""\ud800""#]),
        (
            "message",
            &[
                "null", "3", r#"["a"]"#, r#""""#, r#"" \t\r\n\u2003""#, r#""\u0000""#, r#""\u001b""#, r#""a\u0085""#,
                &huge,
            ],
        ),
    ] {
        for value in values {
            let usual = [("name", r#""Rex""#), ("categoryId", "3"), ("status", r#""sold""#), ("message", r#""Hi""#)];
            let fields =
                usual.map(|(name, usual)| format!("\"{name}\":{}", if name == field { *value } else { usual }));
            let body = format!("{{{}}}", fields.join(","));
            let answer =
                if field == "message" { service.message(&body).await } else { service.post("/v1/pets", &body).await };
            assert_eq!(answer.code(), "invalid_value", "{body}");
            assert!(message(&answer).contains(&format!("`{field}`")), "{body}: {}", answer.body);
        }
    }
    assert_eq!(service.get("/v1/pets").await.json(), json!([]));
    assert_eq!(service.store.count_unsent_messages(1).await.unwrap(), 0);
}

#[tokio::test]
async fn every_json_syntax_is_accepted_and_unknown_fields_are_ignored() {
    let service = Service::start().await;
    let deep = format!("\"deep\":{}{}", "[".repeat(30_000), "]".repeat(30_000));
    for other in [r#""colour":"red","colour":null"#, r#""id":"not an id""#, r#""Status":"LOST""#, r#""":1e999"#, &deep]
    {
        let body = format!("\t\r\n {{{other}, \"c\\u0061tegoryId\" : 3 ,\n\"name\":\"\\u0052\\ud83e\\udd8a\\/\" }} \n");
        let pet = service.post("/v1/pets", &body).await.json();
        assert_eq!((&pet["name"], &pet["status"]), (&json!("R🦊/"), &json!("available")), "{body:.60}");
    }
}

#[tokio::test]
async fn paths_are_exact() {
    let service = Service::with_pets(1).await;
    let get = (service.store_address, "GET", "");
    let post = (service.store_address, "POST", "");
    for ((address, method, body), paths) in [
        (get, &["/v1/pets/", "/v1/pets/1/", "//v1/pets", "/v1//pets", "/V1/pets", "/v1/Pets", "/pets", "/v1/"][..]),
        (get, &["/livez/", "/readyz/", "/openapi.json/", "/v1", "/v1/store", "/v1/store/orders/"]),
        (get, &["/v1/store/orders/1/"]),
        (post, &["/v1/store/orders/", "/v1/store/orders/1/return", "/v1/store/orders/1/approve/"]),
        ((service.messages_address, "POST", HELLO), &["/v1/messages/", "/messages", "/v1/Messages"]),
    ] {
        for path in paths {
            let answer = Request::new(address, method, path).key(&service.key).json(body).send().await;
            assert_eq!(answer.code(), "not_found", "{method} {path}");
        }
    }
}

fn message(answer: &Response) -> String {
    answer.json()["message"].as_str().unwrap().to_owned()
}
