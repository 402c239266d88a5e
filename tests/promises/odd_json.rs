//! Promise 22: JSON that is odd in any way is answered, never with a 5xx, and with the same on both databases.

use testkit::{PostgresServer, Random, postgres, trial};

use crate::service::{Service, Setup};

/// What may stand where a value stands. Depth 10^5 does not fit into 64 KiB; the deepest that fits is here, and the parser
/// itself is given 10^5 in `http::json`.
fn values() -> Vec<Vec<u8>> {
    let deep = |open: &str, close: &str, depth: usize| format!("{}{}", open.repeat(depth), close.repeat(depth));
    let mut values: Vec<Vec<u8>> = [
        "1",
        "0",
        "-0",
        "-1",
        "3.0",
        "3e0",
        "3.5",
        "1e999",
        "-1e999",
        "1e-999",
        "1e99999999999999999999",
        "0e999",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "18446744073709551616",
        "9007199254740993.0",
        "9007199254740992.0",
        "00",
        "01",
        "+1",
        ".5",
        "1.",
        "0x1",
        "1e",
        "NaN",
        "Infinity",
        "-",
        "--1",
        "true",
        "false",
        "null",
        "nul",
        "[]",
        "{}",
        "[1,2]",
        "{\"a\":1}",
        "\"\"",
        "\" \"",
        "\"x\"",
        "\"sold\"",
        "\"available\"",
        "\"Sold\"",
        "\"\\u0000\"",
        "\"a\\u0000b\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\udc00\\ud800\"",
        "\"\\ud83e\\udd8a\"",
        "\"\\ud83e\\ud83e\"",
        "\"\\u00\"",
        "\"\\x\"",
        "\"\\",
        "\"",
        "\"\t\"",
        "\"\n\"",
        "\"\u{7f}\"",
        "\"\u{85}\"",
        "\"\u{2028}\"",
        "\"\u{feff}\"",
        "\"\u{e000}\"",
        "\"\u{10ffff}\"",
        "\"e\u{301}\"",
        "\"'; DROP TABLE pets; --\"",
        "\"%s%n${jndi:x}\"",
        "\"\\u0022,\\u0022\"",
        "",
        " ",
        ",",
        ":",
        "/**/1",
        "1//",
        "'x'",
        "x",
        "[",
        "]",
        "{",
        "}",
        "[1,]",
        "{\"a\":}",
        "{\"a\" 1}",
        "{a:1}",
        "\u{0}",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
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

/// Each value in each field, in a field that nobody knows, as a key, doubled, and as the whole body.
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
    let postgres = Some(postgres::database());
    let postgres = Service::start_with(Setup { postgres, ..Setup::default() }).await;
    let mut random = Random::from_seed();
    let bodies = bodies();
    assert!(bodies.len() >= 300);
    let (mut accepted, mut refused) = (0_u64, 0_u64);
    for round in 0..trial::rounds(bodies.len() as u32) as usize {
        // Once all were sent, they are sent with a byte changed.
        let mut body = bodies[round % bodies.len()].clone();
        if round >= bodies.len() && !body.is_empty() {
            let position = random.below(body.len().min(200) as u64) as usize;
            body[position] = random.next() as u8;
        }
        for path in ["/v1/pets", "/v1/messages"] {
            let (there, here) = tokio::join!(answer(&sqlite, path, &body), answer(&postgres, path, &body));
            let shown: String = String::from_utf8_lossy(&body).chars().take(80).collect();
            assert_eq!(there, here, "{path} {shown}");
            assert!(there.0 < 500, "{path} {shown}: {there:?}");
            *(if there.0 < 300 { &mut accepted } else { &mut refused }) += 1;
        }
    }
    assert!(accepted > 50 && refused > 300, "{accepted} accepted, {refused} refused: the cases test little");
    trial::measured(&format!("{} bodies, {refused} refused, 0 with a 5xx, 0 differences", accepted + refused));
}

/// The status, and what of the answer is the same each time.
async fn answer(service: &Service, path: &str, body: &[u8]) -> (u16, String) {
    let request = match path {
        "/v1/messages" => service.message_request(),
        _ => service.request("POST", path),
    };
    let answer = request.key(&service.key).json(body).send().await;
    let mut json = answer.json();
    if path == "/v1/messages" && answer.status() == 202 {
        json["id"] = serde_json::Value::Null;
    }
    (answer.status(), json.to_string())
}

/// The control: the databases themselves do not agree, so that it is the service that makes them.
#[test]
fn databases_alone_would_respond_differently() {
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    let kept: String = sqlite.query_row("SELECT ?1", ["a\0b"], |row| row.get(0)).unwrap();
    assert_eq!(kept, "a\0b");
    let url = PostgresServer::shared().database();
    let refused = postgres::try_query(&url, "SELECT length(U&'a\\0000b')").unwrap_err();
    assert!(refused.contains("invalid"), "{refused}");
}
