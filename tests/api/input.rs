//! Strict parsing: the query, the JSON of a body, and its fields.

use petstore::api::Operation;
use serde_json::json;
use testkit::{Request, Response};

use crate::service::{HELLO, Service};

#[tokio::test]
async fn query_is_parsed_strictly() {
    let service = Service::start().await;
    for (parameter, values) in [
        (
            "limit",
            &["=0", "=101", "=256", "=-1", "=", "", "=abc", "=3.0", "=%2B3", "=%203", "=3%00", "=%D9%A3", "=%FF"][..],
        ),
        ("status", &["=", "=Available", "=available%20", "=available,sold", "=lost", "=0"]),
        ("after", &["=", "=x", "=1.0", "=+1", "=9223372036854775808", "=-9223372036854775809"]),
    ] {
        for value in values {
            let answer = service.get(&format!("/v1/pets?{parameter}{value}")).await;
            assert_rejected(&answer, "invalid_value", &format!("`{parameter}`"), value);
        }
    }
    for (query, named) in [
        ("colour=red", "`colour`"),
        ("Limit=3", "`Limit`"),
        ("limit[]=3", "`limit[]`"),
        ("limit=3&page=2", "`page`"),
        ("=3", "``"),
        ("limit=3&limit=3", "`limit`"),
        ("limit=3&l%69mit=4", "`limit`"),
        ("status=sold&status=sold", "`status`"),
        ("after=1&limit=3&after=2", "`after`"),
    ] {
        let answer = service.get(&format!("/v1/pets?{query}")).await;
        assert_rejected(&answer, "unknown_parameter", named, query);
    }
}

#[tokio::test]
async fn query_error_lists_the_allowed_values() {
    let service = Service::start().await;
    for (query, allowed) in [
        ("limit=0", "1 to 100"),
        ("limit=x", "digits"),
        ("status=lost", "available, pending, sold"),
        ("after=x", "digits"),
        ("colour=red", "limit, status, after"),
    ] {
        let message = message(&service.get(&format!("/v1/pets?{query}")).await);
        assert!(message.contains(allowed), "{query}: {message}");
    }
}

/// `tests/contract` sends an unknown parameter to every operation.
#[tokio::test]
async fn queries_of_orders_and_messages_are_parsed_strictly() {
    let service = Service::start().await;
    let id = service.message(HELLO).await.json()["id"].as_str().unwrap().to_owned();
    let (bare, short, upper) = (&id[4..], &id[..35], id.to_uppercase());
    for (operation, query, code, named) in [
        (Operation::ListOrders, "limit=101", "invalid_value", "`limit`"),
        (Operation::ListOrders, "status=sold", "invalid_value", "`status`"),
        (Operation::ListOrders, "status=Placed", "invalid_value", "`status`"),
        (Operation::ListOrders, "after=x", "invalid_value", "`after`"),
        (Operation::ListMessages, "limit=", "invalid_value", "`limit`"),
        (Operation::ListMessages, "after=1", "invalid_value", "`after`"),
        (Operation::ListMessages, &format!("after={bare}"), "invalid_value", "`after`"),
        (Operation::ListMessages, &format!("after={short}"), "invalid_value", "`after`"),
        (Operation::ListMessages, &format!("after={upper}"), "invalid_value", "`after`"),
        (Operation::ListMessages, &format!("after={id}&after={id}"), "unknown_parameter", "`after`"),
        (Operation::ListMessages, "status=queued", "unknown_parameter", "`status`"),
    ] {
        let answer = service.request_to_query(operation, "", &format!("?{query}")).key(&service.key).send().await;
        assert_rejected(&answer, code, named, query);
    }
    let long = service.get(&format!("/v1/pets?{}", "x".repeat(300))).await;
    assert_rejected(&long, "unknown_parameter", "`xxx", "a long name");
    assert!(message(&long).len() < 200, "the name is cut: {}", long.body);
}

#[tokio::test]
async fn body_must_be_a_json_object() {
    let service = Service::start().await;
    let deep = format!(r#"{{"name":"Rex","categoryId":3,"other":{}"#, "[".repeat(30_000));
    let bodies: &[&[u8]] = &[
        b"",
        b" ",
        b"{",
        b"[{\"name\":\"Rex\",\"categoryId\":3}]",
        b"null",
        b"{\"name\":\"Rex\",\"categoryId\":3",
        b"{\"name\":\"Rex\",\"categoryId\":3,}",
        b"{\"name\":\"Rex\",\"categoryId\":3}{}",
        b"{\"name\":\"Rex\",\"categoryId\":03}",
        b"{\"name\":\"Rex\",\"categoryId\":NaN}",
        b"{\"name\":\"R\nx\",\"categoryId\":3}",
        b"\xef\xbb\xbf{\"name\":\"Rex\",\"categoryId\":3}",
        b"{\"name\":\"R\xffx\",\"categoryId\":3}",
        b"{\"name\":\"R\xed\xa0\x80x\",\"categoryId\":3}",
        b"{\"name\":\"Rex\",\"categoryId\":3,\"other\":\"\xc0\x80\"}",
        b"name=Rex&categoryId=3",
        b"{\"name\":\"Rex\",\"categoryId\":3,\"n\\u0061me\":\"Tom\"}",
        b"{\"name\":\"Rex\",\"categoryId\":3,\"status\":\"sold\",\"status\":\"sold\"}",
        deep.as_bytes(),
    ];
    for body in bodies {
        let shown: String = String::from_utf8_lossy(body).chars().take(60).collect();
        let answer = service.request("POST", "/v1/pets").key(&service.key).json(*body).send().await;
        assert_eq!((answer.status(), answer.code().as_str()), (400, "invalid_json"), "{shown}");
    }
    for body in [
        &b""[..],
        b"[]",
        b"{",
        b"{\"message\":\"\xff\"}",
        br#"{"message":"a","message":"b"}"#,
        br#"{"message":"a","messag\u0065":"b"}"#,
    ] {
        let answer = service.message_request().key(&service.key).json(body).send().await;
        assert_eq!(answer.code(), "invalid_json", "{}", body.escape_ascii());
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
    for (body, named) in [
        ("{}", "`name`"),
        (r#"{"categoryId":3}"#, "`name`"),
        (r#"{"name":"Rex"}"#, "`categoryId`"),
        (r#"{"name":"Rex","status":"sold"}"#, "`categoryId`"),
        (r#"{"name":"Rex","categoryid":3}"#, "`categoryId`"),
        (r#"{"name":"Rex","category_id":3}"#, "`categoryId`"),
        (r#"{"Name":"Rex","categoryId":3}"#, "`name`"),
        (r#"{"\ud800":"Rex","categoryId":3}"#, "`name`"),
    ] {
        assert_rejected(&service.post("/v1/pets", body).await, "missing_field", named, body);
    }
    assert_rejected(&service.message("{}").await, "missing_field", "`message`", "sendMessage");
}

#[tokio::test]
async fn field_of_wrong_type_or_value_is_named() {
    let service = Service::start().await;
    let long = format!("{:?}", "ä".repeat(256));
    for (field, values) in [
        ("categoryId", &[r#""3""#, "3.5", "true", "null", "[3]", "{}", "1e999", "9223372036854775808"][..]),
        ("name", &["3", "null", "true", "[]", "{}", r#""""#, r#"" ""#, r#""\u00a0\u3000""#, &long]),
        ("name", &[r#""a\u0000b""#, r#""a\nb""#, r#""a\u009fb""#, r#""a\ud800b""#, r#""a\udc00\ud800""#]),
        ("status", &["null", "0", "true", r#"["sold"]"#, r#""""#, r#""SOLD""#, r#"" sold""#, r#""\ud800""#]),
    ] {
        for value in values {
            let fields = [("name", r#""Rex""#), ("categoryId", "3"), ("status", r#""sold""#)];
            let fields =
                fields.map(|(name, usual)| format!("\"{name}\":{}", if name == field { *value } else { usual }));
            let body = format!("{{{}}}", fields.join(","));
            assert_rejected(&service.post("/v1/pets", &body).await, "invalid_value", &format!("`{field}`"), &body);
        }
    }
    assert_eq!(service.get("/v1/pets").await.json(), json!([]));
}

#[tokio::test]
async fn field_error_lists_the_allowed_values() {
    let service = Service::start().await;
    for (body, words) in [
        (r#"{"name":"Rex","categoryId":"3"}"#, ["integer", "a string"]),
        (r#"{"name":"Rex","categoryId":null}"#, ["integer", "null"]),
        (r#"{"name":"Rex","categoryId":18446744073709551616}"#, ["-9223372036854775808", "9223372036854775807"]),
        (r#"{"name":"Rex","categoryId":3,"status":"lost"}"#, ["available, pending, sold", "must"]),
        (r#"{"name":"","categoryId":3}"#, ["1 to 255", "0"]),
        (r#"{"name":"a\u0007","categoryId":3}"#, ["control character", "U+0007"]),
    ] {
        let message = message(&service.post("/v1/pets", body).await);
        assert!(words.iter().all(|word| message.contains(word)), "{body}: {message}");
    }
    let message = message(&service.message(r#"{"message":""}"#).await);
    assert!(message.contains("1 to 10,000"), "{message}");
}

#[tokio::test]
async fn unknown_fields_are_ignored() {
    let service = Service::start().await;
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let others = [
        r#""colour":"red","colour":null"#,
        r#""id":"not an id""#,
        r#""Status":"LOST""#,
        r#""\ud800":"\udc00""#,
        r#""":1e999"#,
        &format!("\"deep\":{deep}"),
    ];
    for others in others {
        let answer = service.post("/v1/pets", &format!(r#"{{{others},"name":"Rex","categoryId":3}}"#)).await;
        let shown: String = others.chars().take(60).collect();
        assert_eq!(answer.status(), 201, "{shown}: {}", answer.body);
    }
}

#[tokio::test]
async fn every_json_syntax_is_accepted() {
    let service = Service::start().await;
    let body = "\t\r\n { \"c\\u0061tegoryId\" : 3 ,\n\"name\":\"\\u0052\\ud83e\\udd8a\\/\" } \n";
    let answer = service.post("/v1/pets", body).await;
    assert_eq!(answer.json(), json!({ "id": 1, "name": "R🦊/", "categoryId": 3, "status": "available" }));
}

#[tokio::test]
async fn paths_are_exact() {
    let service = Service::with_pets(1).await;
    let get = (service.store_address, "GET", "");
    for ((address, method, body), paths) in [
        (get, &["/v1/pets/", "/v1/pets/1/", "//v1/pets", "/v1//pets", "/V1/pets", "/v1/Pets", "/pets", "/v1/"][..]),
        (
            get,
            &["/livez/", "/readyz/", "/openapi.json/", "/v1", "/v1/store", "/v1/store/orders/", "/v1/store/orders/1/"],
        ),
        ((service.store_address, "POST", ""), &["/v1/store/orders/", "/v1/store/orders/1/return"]),
        ((service.store_address, "POST", ""), &["/v1/store/orders/1/approve/"]),
        ((service.messages_address, "POST", HELLO), &["/v1/messages/", "/messages", "/v1/Messages"]),
    ] {
        for path in paths {
            let answer = Request::new(address, method, path).key(&service.key).json(body).send().await;
            assert_eq!(answer.code(), "not_found", "{method} {path}");
        }
    }
}

fn assert_rejected(answer: &Response, code: &str, named: &str, case: &str) {
    assert_eq!((answer.status(), answer.code().as_str()), (400, code), "{case}: {}", answer.body);
    let message = message(answer);
    assert!(message.contains(named), "{case}: {message}");
}

fn message(answer: &Response) -> String {
    answer.json()["message"].as_str().unwrap().to_owned()
}
