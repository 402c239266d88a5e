//! Forms: their errors, the values that they keep, and repeated submissions.

use std::time::Duration;

use serde_json::Value;
use testkit::console::{PASSWORD, between, code};
use testkit::{ConsoleUser, pet_with_all_fields, read_response, soon};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::service::{Service, Setup};
use crate::users::{ADA, signed_in, signed_in_with_key, status};

#[tokio::test]
async fn rejected_form_keeps_its_values_and_explains_each_error() {
    let (service, mut ada) = signed_in().await;

    let page = ada.post("/animals/new", &[("name", "\"><b>\t"), ("categoryId", "3.5"), ("status", "sold")]).await;

    assert_eq!(page.status(), 422);
    assert_eq!(message(&page.body, "name"), "The name has the control character U+0009, which is not allowed.");
    assert_eq!(
        message(&page.body, "categoryId"),
        "The category must be a whole number of at most 64 bits, written in digits."
    );
    assert!(page.body.contains("value=\"&#34;&#62;&#60;b&#62;\t\""), "{}", page.body);
    assert!(page.body.contains(r#"value="3.5""#) && page.body.contains(r#"value="sold" checked"#));
    assert_eq!(service.store.count_pets().await.unwrap(), 0);
}

#[tokio::test]
async fn order_forms_report_the_order_and_its_animal() {
    let (service, mut ada) = signed_in().await;
    service.create_pets(1).await;
    let refused = ada.post("/orders", &[("petId", "Rex")]).await;
    assert_eq!(refused.status(), 422);
    let wrong = "The animal must be a whole number of at most 64 bits, written in digits.";
    assert_eq!(message(&refused.body, "petId"), wrong);
    assert!(refused.body.contains(r#"value="Rex""#), "{}", refused.body);

    let cancel = "/orders/1/cancel";
    for (path, pet, status, words) in [
        ("/orders", " 1 ", 201, "Order 1 is now placed. \u{2068}Rex\u{2069} (animal 1) is pending."),
        ("/orders", "1", 409, "The animal is not available."),
        ("/orders", "2", 404, "There is no animal with this id."),
        ("/orders/1/deliver", "", 409, "The order is placed; only one that is approved can become delivered."),
        ("/orders/1/approve", "", 200, "Order 1 is now approved. \u{2068}Rex\u{2069} (animal 1) is pending."),
        (cancel, "", 200, "Order 1 is now cancelled. \u{2068}Rex\u{2069} (animal 1) is available."),
        (cancel, "", 409, "The order is cancelled; only one that is placed or approved can become cancelled."),
        ("/orders/2/approve", "", 404, "You have no order with this id."),
        ("/orders", "1", 201, "Order 2 is now placed. \u{2068}Rex\u{2069} (animal 1) is pending."),
        ("/orders/2/approve", "", 200, "Order 2 is now approved. \u{2068}Rex\u{2069} (animal 1) is pending."),
        ("/orders/2/deliver", "", 200, "Order 2 is now delivered. \u{2068}Rex\u{2069} (animal 1) is sold."),
    ] {
        let page = ada.post(path, &[("petId", pet)]).await;
        let words = if status < 400 { words.to_owned() } else { format!("Nothing was changed. {words}") };
        assert_eq!((page.status(), between(&page.body, r#"" role="status">"#, "</p>")), (status, &*words), "{path}");
        assert!(page.body.contains(&format!("HTTP/1.1 {status} ")), "the response of the API is shown: {}", page.body);
    }
    for nothing in ["/orders/1/return", "/orders/x/cancel"] {
        assert_eq!(ada.post(nothing, &[]).await.status(), 404, "{nothing}");
    }
    let mut grace = ConsoleUser::signed_in(&service, "grace@example.com").await;
    assert!(grace.get("/orders").await.body.contains("You have no orders yet."));
    assert_eq!(grace.post("/orders/2/cancel", &[]).await.status(), 404, "orders of other accounts are not found");
    let delivered = ada.get("/orders?status=delivered").await.body;
    assert!(delivered.contains(r#"<span class="status delivered">"#) && !delivered.contains("formaction="));
}

#[test]
fn list_orders_an_animal_with_one_click() {
    Service::with_pets_on_every_database(1, async |service| {
        service.post("/v1/pets", r#"{"name":"Mimi & Co","categoryId":1}"#).await;
        let mut ada = ConsoleUser::signed_in(service, ADA).await;
        let empty = ada.get("/orders").await.body;
        assert!(empty.contains(r#"<a href="./animals?status=available">available animal</a>"#), "{empty}");

        let list = ada.get("/animals").await.body;
        assert!(list.contains(r#"<button form="order" formaction="./animals/2/order""#), "{list}");
        let form = between(&list, r#"<form id="order" method="post">"#, "</form>");
        let key = between(form, r#"name="idempotencyKey" value=""#, "\"").to_owned();
        let fields = [("idempotencyKey", &*key)];

        let placed = ada.post("/animals/2/order", &fields).await;
        assert_eq!(placed.status(), 201);
        assert!(placed.body.contains(&format!("Idempotency-Key: {key}-2")), "{}", placed.body);
        let said = "Order 1 is now placed. \u{2068}Mimi &#38; Co\u{2069} (animal 2) is pending.";
        assert!(placed.body.contains(said), "{}", placed.body);
        assert!(placed.body.contains(r#"<td data-label="Animal"><bdi>Mimi &#38; Co</bdi> "#), "{}", placed.body);
        let again = ada.post("/animals/2/order", &fields).await.body;
        assert!(again.contains("This form was sent twice and counts once."), "{again}");
        let list = ada.get("/animals").await.body;
        assert!(!list.contains("./animals/2/order"), "a pending animal cannot be ordered: {list}");
        let other = ada.post("/animals/1/order", &fields).await;
        assert_eq!(other.status(), 201, "the form orders each animal once: {}", other.body);
        assert_eq!(ada.post("/animals/x/order", &fields).await.status(), 404);
    });
}

#[tokio::test]
async fn example_of_an_order_is_the_newest_available_animal() {
    let (service, mut ada) = signed_in().await;
    service.create_pets(3).await;
    assert_eq!(ada.post("/orders", &[("petId", "3")]).await.status(), 201);
    assert!(ada.get("/orders").await.body.contains(r#"data-example="2""#));
}

#[tokio::test]
async fn form_of_another_account_changes_nothing() {
    let (_service, mut ada) = signed_in().await;
    for (path, field) in [("/account/password", "current"), ("/account/delete", "password")] {
        let shown = [("email", "grace@example.com"), (field, PASSWORD), ("new", "another fine password")];
        for fields in [&shown[..], &shown[..1]] {
            let page = ada.post(path, fields).await;
            assert_eq!(page.status(), 422, "{path}: {}", page.body);
            assert!(message(&page.body, field).ends_with("Nothing was changed."), "{path}: {}", page.body);
        }
    }
    assert!(ada.is_signed_in().await);
}

#[tokio::test]
async fn empty_fields_are_requested() {
    let service = Service::start().await;
    let mut somebody = ConsoleUser::new(&service);
    let mut ada = ConsoleUser::signed_in(&service, ADA).await;
    let expected = [
        ("/animals/new", vec![("name", "Enter a name."), ("categoryId", "Enter the id of a category.")]),
        ("/orders", vec![("petId", "Enter the id of an animal.")]),
        ("/messages", vec![("message", "Enter a message.")]),
        ("/keys/new", vec![("name", "Enter a name.")]),
        ("/account/password", vec![("current", "Enter your password."), ("new", "Enter a new password.")]),
        ("/account/delete", vec![("password", "Enter your password.")]),
        ("/sign-in", vec![("email", "Enter your e-mail address."), ("password", "Enter your password.")]),
        ("/sign-up", vec![("email", "Enter an e-mail address."), ("password", "Enter a password.")]),
    ];
    for (path, fields) in expected {
        let person = if path.starts_with("/sign") { &mut somebody } else { &mut ada };
        let others = [("newest", "0"), ("expiry", "90d"), ("access", "write"), ("status", "sold")];
        let page = person.post(path, &others).await;
        assert_eq!(page.status(), 422, "{path}: {}", page.body);
        for (field, expected) in fields {
            assert_eq!(message(&page.body, field), expected, "{path}");
        }
    }
    let blank = ada.post("/animals/new", &[("name", "  "), ("categoryId", " "), ("status", "")]).await.body;
    assert_eq!(message(&blank, "name"), "Enter a name.");
    assert!(blank.contains("Choose a status."), "{blank}");
    // Empty forms do not count as attempts.
    somebody.sign_in(ADA, PASSWORD).await;
    assert_eq!(service.store.count_pets().await.unwrap(), 0);
}

#[tokio::test]
async fn request_beside_a_form_is_an_example_until_something_is_submitted() {
    let (service, mut ada) = signed_in().await;
    for status in ["available", "sold"] {
        service.post("/v1/pets", &format!(r#"{{"name":"Rex","categoryId":1,"status":"{status}"}}"#)).await;
    }
    for (path, field, example) in
        [("/animals/new", "name", "Rex"), ("/orders", "petId", "1"), ("/messages", "message", "Hello, store!")]
    {
        let page = ada.get(path).await.body;
        assert!(!page.contains("placeholder=") && page.contains(&format!(" For example <code>{example}</code>.")));
        assert!(page.contains(r#"" class="example">"#), "{page}");
        let refused = ada.post(path, &[(field, "")]).await.body;
        assert!(refused.contains("Nothing was sent, because the form has errors."), "{refused}");
        assert!(refused.contains(r#"" class="example" hidden>"#), "{refused}");
    }
    let ordered = ada.get("/orders?petId=1").await.body;
    assert!(!ordered.contains(r#"class="example""#), "the form is filled in: {ordered}");
}

#[tokio::test]
async fn sign_up_errors_never_show_the_password() {
    let service = Service::start().await;
    let mut ada = ConsoleUser::new(&service);
    let page = ada.post("/sign-up", &[("email", "ada"), ("password", "too short")]).await;
    assert_eq!(page.status(), 422);
    assert_eq!(message(&page.body, "email"), "The address must be an e-mail address, for instance ada@example.com.");
    assert_eq!(message(&page.body, "password"), "The password has 9 characters; 12 to 128 are allowed.");
    assert!(page.body.contains(r#"value="ada""#) && !page.body.contains("too short"));

    let page = ada.post("/sign-in", &[("email", ADA), ("password", PASSWORD)]).await;
    assert!(page.body.contains(&format!("value=\"{ADA}\"")) && !page.body.contains(PASSWORD));
}

#[tokio::test]
async fn incomplete_form_gets_a_response() {
    let (short, long) = (Duration::from_millis(200), Duration::from_mins(5));
    for (limit, rest, status, message) in [
        (short, "Content-Length: 100\r\n\r\nemail=", 408, "The form did not arrive in time."),
        (long, "Transfer-Encoding: chunked\r\n\r\nno length\r\n", 400, "The form could not be read completely."),
    ] {
        let mut setup = Setup::default();
        setup.limits.request = limit;
        let service = Service::start_with(setup).await;
        let mut stream = TcpStream::connect(service.store_address).await.unwrap();
        let head = format!(
            "POST /sign-in HTTP/1.1\r\nHost: {0}\r\nOrigin: http://{0}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n",
            service.store_address
        );
        stream.write_all(format!("{head}{rest}").as_bytes()).await.unwrap();

        let answer = soon(read_response(&mut stream)).await;

        assert_eq!(answer.status(), status, "{rest}");
        assert!(answer.body.contains(message), "{}", answer.body);
    }
}

#[tokio::test]
async fn message_is_sent_as_typed() {
    let (service, mut ada) = signed_in().await;
    for (text, why) in [
        (" \r\n ", "Enter a message."),
        (&"x".repeat(12_345), "The message has 12,345 characters; 1 to 10,000 are allowed."),
    ] {
        let refused = ada.post("/messages", &[("message", text)]).await;
        assert_eq!((refused.status(), &*message(&refused.body, "message")), (422, why));
    }

    // A browser writes the end of a line as two characters.
    let page = ada.post("/messages", &[("message", "Hello,\r\n<store>")]).await;

    assert_eq!(page.status(), 202);
    assert!(page.body.contains("HTTP/1.1 202 Accepted"), "{}", page.body);
    assert_eq!(between(&page.body, r#"<p class="message">"#, "</p>"), "Hello,\n&#60;store&#62;");
    assert_eq!(service.sql("SELECT replace(message, char(10), '|') FROM messages"), "Hello,|<store>");
}

#[tokio::test]
async fn form_sends_every_field_of_an_animal() {
    let (service, mut ada) = signed_in().await;
    let mut pet = pet_with_all_fields();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let fields: Vec<_> = pet.as_object().unwrap().iter().map(|(name, value)| (name.clone(), text(value))).collect();
    let page = ada.get("/animals/new").await.body;
    for (name, _) in &fields {
        assert!(page.contains(&format!(r#"name="{name}""#)), "{name}: {page}");
    }

    let fields: Vec<_> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(ada.post("/animals/new", &fields).await.status(), 201);

    pet["id"] = 1.into();
    assert_eq!(service.get("/v1/pets/1").await.json(), pet);
}

#[tokio::test]
async fn page_shows_the_response_of_the_api() {
    let (service, mut ada, key) = signed_in_with_key().await;

    let added = ada.post("/animals/new", &[("name", "Rex"), ("categoryId", " 3 "), ("status", "pending")]).await;
    assert!(added.body.contains("Animal 1 was added."), "{}", added.body);
    let shown = code(&added.body, "answer");
    let created =
        service.request("POST", "/v1/pets").key(&key).json(r#"{"name":"Rex","categoryId":3,"status":"pending"}"#);
    assert_eq!(shown, answer(&created.send().await).replace("/2\n", "/1\n").replace(":2,", ":1,"));
    let request = code(&added.body, "request-curl");
    assert!(request.contains(" -H 'Content-Type: application/json' "), "{request}");
    assert!(request.ends_with(r#"-d '{"name":"Rex","categoryId":3,"status":"pending"}'"#), "{request}");

    for _ in 0..20 {
        service.post("/v1/pets", r#"{"name":"Mimi","categoryId":1,"status":"pending"}"#).await;
    }
    let page = ada.get("/animals?status=pending").await;
    let shown = code(&page.body, "answer");
    // The API returns the animals of the page, in its own order.
    let listed = service.request("GET", "/v1/pets?limit=20&status=pending&after=2").key(&key).send().await;
    assert_eq!(shown, answer(&listed));
    assert_eq!(listed.json().as_array().unwrap().len(), 20);

    for number in 0..11 {
        ada.post("/messages", &[("message", &*number.to_string())]).await;
    }
    let shown = code(&ada.get("/messages").await.body, "answer");
    assert_eq!(shown.matches("msg_").count(), 10, "{shown}");
}

#[tokio::test]
async fn repeated_form_counts_once_and_its_page_says_so() {
    let (service, mut ada, key) = signed_in_with_key().await;
    let pet = r#"{"name":"Rex","categoryId":3,"status":"available"}"#;
    for (page, action, fields, status, body) in [
        ("/animals/new", "/animals/new", vec![("name", "Rex"), ("categoryId", "3"), ("status", "available")], 201, pet),
        ("/messages", "/messages", vec![("message", "Hello, store!")], 202, r#"{"message":"Hello, store!"}"#),
        ("/orders", "/orders", vec![("petId", "1")], 201, r#"{"petId":1}"#),
        ("/orders", "/orders/1/approve", vec![], 200, ""),
        ("/orders", "/orders/1/deliver", vec![], 200, ""),
    ] {
        let opened = ada.get(page).await.body;
        let once = between(&opened, "name=\"idempotencyKey\" value=\"", "\"").to_owned();
        let form = [&fields[..], &[("idempotencyKey", &once)]].concat();
        // Orders share a form, so the order's id is added to the key.
        let api_key = if page == action { once.clone() } else { format!("{once}-1") };
        let first = ada.post(action, &form).await;
        assert_eq!(first.status(), status, "{action}: {}", first.body);
        assert!(!first.body.contains("counts once."), "{}", first.body);
        let line = code(&first.body, "request-curl");
        assert!(line.contains(&format!("-H 'Idempotency-Key: {api_key}'")), "{line}");

        let again = ada.post(action, &form).await;

        assert_eq!(again.status(), status, "{action}: {}", again.body);
        let said = "This form was sent twice and counts once. Nothing was changed this time.";
        assert!(again.body.contains(said), "{}", again.body);
        let answer = |page: &str| code(page, "answer");
        let replayed = answer(&again.body).replace("idempotent-replayed: true\n", "");
        assert_eq!((replayed, answer(&again.body).len()), (answer(&first.body), answer(&first.body).len() + 26));
        assert_ne!(between(&again.body, "name=\"idempotencyKey\" value=\"", "\""), once, "the next form has a new key");

        // The key is that of the API, which replays the same response.
        let (listener, path) = match action {
            "/messages" => (service.messages_address, "/v1/messages".to_owned()),
            "/animals/new" => (service.store_address, "/v1/pets".to_owned()),
            orders => (service.store_address, format!("/v1/store{orders}")),
        };
        let request = testkit::Request::new(listener, "POST", &path).key(&key).header("idempotency-key", &api_key);
        let program = request.json(body).send().await;
        assert_eq!((program.status(), program.is_replayed()), (status, true), "{}", program.body);
    }
    let counts = "SELECT (SELECT count(*) FROM pets), (SELECT count(*) FROM messages), (SELECT count(*) FROM orders)";
    assert_eq!(service.sql(counts), "1|1|1");
}

#[tokio::test]
async fn form_sent_before_with_other_values_can_be_resent() {
    let (_service, mut ada) = signed_in().await;
    let once = ("idempotencyKey", "going-back-fills-in-the-same-key");
    assert_eq!(ada.post("/messages", &[("message", "Hello"), once]).await.status(), 202);

    let other = ada.post("/messages", &[("message", "Hello again"), once]).await;

    assert_eq!(other.status(), 422);
    assert!(other.body.contains("You can now send it again.") && other.body.contains("idempotency_key_reused"));
    let new = between(&other.body, "name=\"idempotencyKey\" value=\"", "\"").to_owned();
    assert_eq!(ada.post("/messages", &[("message", "Hello again"), ("idempotencyKey", &new)]).await.status(), 202);
    for no_key in ["", "two words", "\u{e4}"] {
        let sent = ada.post("/messages", &[("message", "Hello"), ("idempotencyKey", no_key)]).await;
        assert_eq!(sent.status(), 202, "a key is generated: {no_key:?}");
    }
}

#[tokio::test]
async fn form_keeps_its_key_until_it_is_executed() {
    let (service, mut ada) = signed_in().await;
    let form = |pet| [("petId", pet), ("idempotencyKey", "kept")];
    for (pet, status) in [("Rex", 422), ("1", 404)] {
        let refused = ada.post("/orders", &form(pet)).await;
        assert_eq!(refused.status(), status);
        assert!(refused.body.contains(r#"name="idempotencyKey" value="kept""#), "{}", refused.body);
    }
    service.create_pets(1).await;
    assert_eq!(ada.post("/orders", &form("1")).await.status(), 201);
}

#[tokio::test]
async fn forms_count_against_the_rate_limit_but_pages_do_not() {
    let rate_limit = petstore::api::RateLimit::parse("2/h").ok();
    let service = Service::start_with(Setup { rate_limit, ..Setup::default() }).await;
    let mut ada = ConsoleUser::signed_in(&service, ADA).await;
    let key = ada.key("laptop").await;
    for path in ["/animals", "/messages", "/orders"].repeat(5) {
        assert_eq!(ada.get(path).await.status(), 200);
    }
    assert_eq!(status(&service, &key).await, 200);
    assert_eq!(ada.post("/messages", &[("message", "Hello, store!")]).await.status(), 202);

    let refused = ada.post("/animals/new", &[("name", "Rex"), ("categoryId", "3"), ("status", "sold")]).await;

    assert_eq!(refused.status(), 429);
    let seconds = refused.header("retry-after").expect("a 429 has Retry-After");
    let shown = code(&refused.body, "answer");
    assert!(shown.contains(&format!("retry-after: {seconds}")), "{shown}");
    assert!(refused.body.contains("The animal was not added.") && refused.body.contains("rate_limited"));
    assert!(refused.body.contains(r#"value="Rex""#), "the value is kept: {}", refused.body);
    assert_eq!(ada.post("/messages", &[("message", "Hello again!")]).await.status(), 429);
    for path in ["/orders", "/orders/1/approve", "/orders/1/deliver", "/orders/1/cancel"] {
        let refused = ada.post(path, &[("petId", "1")]).await;
        assert_eq!(refused.status(), 429, "{path}");
        let has = |words| refused.body.contains(words);
        assert!(has("Nothing was changed.") && has("rate_limited"), "{path}: {}", refused.body);
    }
    assert_eq!(status(&service, &key).await, 429);
    assert_eq!(ada.get("/animals").await.status(), 200);
}

/// The error beside a field.
fn message(page: &str, field: &str) -> String {
    assert!(page.contains(&format!("aria-describedby=\"{field}-hint {field}-error\"")), "{page}");
    between(page, &format!("id=\"{field}-error\">"), "</p>").to_owned()
}

/// A response of the API as a page shows it, without the headers that middleware adds.
fn answer(answer: &testkit::Response) -> String {
    let own = ["content-type", "cache-control", "x-content-type-options", "location", "link"];
    let headers = answer.head.headers.iter().filter(|(name, _)| own.contains(&name.as_str()));
    let headers: String = headers.map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap())).collect();
    format!("HTTP/1.1 {}\n{headers}\n{}", answer.head.status, answer.body)
}
