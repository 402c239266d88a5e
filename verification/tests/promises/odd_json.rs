//! Promise 22: no JSON body causes a 5xx, and the responses on both databases are the same.

use testkit::{Random, postgres, trial};

use crate::service::Service;

/// Values and text that is none. A depth of 10^5 does not fit into 64 KiB: `http::json` tests that of the parser itself.
fn values() -> Vec<Vec<u8>> {
    let deep = |open: &str, close: &str, depth: usize| format!("{}{}", open.repeat(depth), close.repeat(depth));
    let without_spaces = r#"
        1 0 -0 -1 3.0 3e0 3.5 1e999 -1e999 1e-999 1e99999999999999999999 0e999 9223372036854775807 9223372036854775808
        -9223372036854775808 -9223372036854775809 18446744073709551615 18446744073709551616 9007199254740993.0
        9007199254740992.0 00 01 +1 .5 1. 0x1 1e NaN Infinity - --1 true false null nul [] {} [1,2] {"a":1}
        "" "x" "sold" "available" "Sold" "\u0000" "a\u0000b" "\ud800" "\udc00" "\udc00\ud800" "\ud83e\udd8a"
        "\ud83e\ud83e" "\u00" "\x" "\ " "%s%n${jndi:x}" "\u0022,\u0022" , : /**/1 1// 'x' x [ ] { } [1,] {"a":} {a:1}"#;
    let others = [
        "\" \"", "\"\t\"", "\"\n\"", "\"\u{7f}\"", "\"\u{85}\"", "\"\u{2028}\"", "\"\u{feff}\"", "\"\u{e000}\"",
        "\"\u{10ffff}\"", "\"e\u{301}\"", "\"'; DROP TABLE pets; --\"", "", " ", "{\"a\" 1}", "\u{0}",
    ];
    let texts = without_spaces.split_whitespace().chain(others);
    let mut values: Vec<Vec<u8>> = texts.map(|text| text.as_bytes().to_vec()).collect();
    for bytes in [
        &b"\"\xff\""[..],
        b"\"\xc0\x80\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
        b"\"\xe2\x82\"",
        b"\xef\xbb\xbf1",
    ] {
        values.push(bytes.to_vec());
    }
    for text in [
        deep("[", "]", 30_000),
        "[".repeat(60_000),
        deep("{\"a\":", "}", 1_000),
        format!("\"{}\"", "x".repeat(255)),
        format!("\"{}\"", "x".repeat(256)),
        format!("\"{}\"", "\u{1f98a}".repeat(255)),
        format!("\"{}\"", "x".repeat(10_000)),
        format!("\"{}\"", "x".repeat(10_001)),
        format!("1{}", "0".repeat(60_000)),
        format!("0.{}1", "0".repeat(60_000)),
        format!("1e{}", "9".repeat(60_000)),
        "\"\\u0041".to_owned() + &"\\ud800".repeat(5_000) + "\"",
    ] {
        values.push(text.into_bytes());
    }
    values
}

/// Bodies with each value in each field, in an unknown field, in a duplicate field, and as the whole body.
fn bodies() -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    let around = [
        ("{\"name\":", ",\"categoryId\":1,\"message\":\"m\"}"),
        ("{\"name\":\"n\",\"categoryId\":", "}"),
        ("{\"name\":\"n\",\"categoryId\":1,\"status\":", "}"),
        ("{\"message\":", ",\"name\":\"n\",\"categoryId\":1}"),
        ("{\"name\":\"n\",\"categoryId\":1,\"message\":\"m\",\"other\":", "}"),
        ("{\"name\":\"n\",\"name\":", ",\"categoryId\":1}"),
        ("", ""),
    ];
    for value in values() {
        for (before, after) in around {
            bodies.push([before.as_bytes(), &value, after.as_bytes()].concat());
        }
    }
    bodies
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_json_is_never_a_5xx_on_either_database() {
    let sqlite = Service::start().await;
    let postgres = Service::start_on_postgresql().await;
    let mut random = Random::from_seed();
    let bodies = bodies();
    assert!(bodies.len() >= 300);
    let (mut accepted, mut refused) = (0_u64, 0_u64);
    for round in 0..trial::rounds(bodies.len() as u32) as usize {
        // After a pass over all bodies, one byte of each is changed.
        let mut body = bodies[round % bodies.len()].clone();
        if round >= bodies.len() && !body.is_empty() {
            let position = random.index(body.len().min(200));
            body[position] = random.next() as u8;
        }
        for path in ["/v1/pets", "/v1/messages"] {
            let (found, on_postgres) = tokio::join!(response(&sqlite, path, &body), response(&postgres, path, &body));
            let shown = String::from_utf8_lossy(&body);
            assert_eq!(found, on_postgres, "{path} {shown:.80}");
            assert!(found.0 < 500, "{path} {shown:.80}: {found:?}");
            *(if found.0 < 300 { &mut accepted } else { &mut refused }) += 1;
        }
    }
    assert!(accepted > 50 && refused > 300, "{accepted} accepted, {refused} refused: little was tested");
    trial::measured(&format!("{} bodies, {refused} refused, 0 with a 5xx, 0 differences", accepted + refused));
}

/// The status and body of a response, without the id of a message, which differs.
async fn response(service: &Service, path: &str, body: &[u8]) -> (u16, String) {
    let request = match path {
        "/v1/messages" => service.message_request(),
        _ => service.request("POST", path),
    };
    let response = request.key(&service.key).json(body).send().await;
    let mut json = response.json();
    if response.status() == 202 {
        json["id"] = serde_json::Value::Null;
    }
    (response.status(), json.to_string())
}

/// Control: the databases alone disagree about NUL, so the service makes them agree.
#[test]
fn databases_alone_would_respond_differently() {
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    let kept: String = sqlite.query_row("SELECT ?1", ["a\0b"], |row| row.get(0)).unwrap();
    assert_eq!(kept, "a\0b");
    let refused = postgres::try_query(&postgres::database(), "SELECT length(U&'a\\0000b')").unwrap_err();
    assert!(refused.contains("invalid"), "{refused}");
}
