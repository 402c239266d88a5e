//! The log of a running service.

use rustix::process::Signal;
use serde_json::Value;
use testkit::{Folder, Request};

/// The id of the trace in the examples of W3C Trace Context.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[tokio::test]
async fn log_requests_logs_every_request() {
    let folder = Folder::with_account();
    let key = folder.key();
    let server = folder.serve("serve --log-requests --log-format json");
    let store = server.address("store");

    let request = Request::new(store, "GET", "/v1/pets/7?x=secret").key(&key);
    let request =
        request.header("x-request-id", "mine").header("traceparent", &format!("00-{TRACE}-00f067aa0ba902b7-01"));
    request.send().await;
    let line = server.logged("request");

    assert_eq!(line["request_id"], "mine");
    assert_eq!(line["trace_id"], TRACE);
    assert_eq!(line["account"], 1);
    assert_eq!((&line["method"], &line["status"]), (&Value::from("GET"), &Value::from(400)));
    assert_eq!((&line["route"], &line["path"]), (&Value::from("/v1/pets/{petId}"), &Value::from("/v1/pets/7")));
    assert!(line["seconds"].as_f64().unwrap() > 0.0, "{line}");
    assert!(!line.to_string().contains("secret"), "{line}");

    Request::new(store, "GET", "/elsewhere").send().await;
    let line = server.logged("request");
    assert_eq!((&line["route"], &line["account"]), (&Value::from("unmatched"), &Value::Null));
}

#[tokio::test]
async fn signals_change_the_level_while_the_service_runs() {
    let folder = Folder::with_account();
    let server = folder.serve("serve");
    let store = server.address("store");

    Request::new(store, "GET", "/livez").header("x-request-id", "before").send().await;
    server.signal(Signal::USR1);
    assert_eq!(server.logged("log level changed")["log_level"], "debug");
    Request::new(store, "GET", "/livez").header("x-request-id", "debug").send().await;
    assert_eq!(server.logged("request")["request_id"], "debug", "the request before was not logged");

    server.signal(Signal::USR2);
    assert_eq!(server.logged("log level changed")["log_level"], "info");
    Request::new(store, "GET", "/livez").send().await;
    let rest = server.end_by(Signal::TERM).log();
    assert!(rest.contains("INFO stopping") && !rest.contains("INFO request"), "{rest}");
}
