//! Request ids: in every response, and in every log line about the request.

use std::io::Write;
use std::sync::{Arc, Mutex};

use testkit::{Request, raw};

use crate::service::Service;

#[tokio::test]
async fn valid_request_id_of_the_client_is_kept() {
    let service = Service::start().await;
    let with_id = async |id: &str| {
        let answer = service.request("GET", "/livez").header("x-request-id", id).send().await;
        answer.header("x-request-id").unwrap().to_owned()
    };
    for kept in ["a", "!~\"\\{}<>", "0199c2f0-a1b4-7c3d-8e5f-60718293a4b5", &"x".repeat(128)] {
        assert_eq!(with_id(kept).await, kept);
    }
    for replaced in ["", "two words", "tab\tbed", &"x".repeat(129)] {
        let new = with_id(replaced).await;
        assert_ne!(new, replaced);
        assert_well_formed(&new);
    }
    let bytes = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-request-id: caf\xc3\xa9\r\n\r\n";
    let answer = raw(service.store_address, bytes).await;
    assert!(!answer.contains("café"), "{answer}");
    assert!(answer.contains("x-request-id: "), "{answer}");
}

#[tokio::test]
async fn response_has_its_own_request_id_and_is_not_stored() {
    let service = Service::with_pets(2).await;
    let mut requests = vec![
        service.call("GET", "/v1/pets?limit=0"),
        service.call("HEAD", "/v1/pets"),
        service.request("DELETE", "/v1/pets"),
        service.call("POST", "/v1/pets").json(" ".repeat(70_000)),
        service.request("GET", "/docs/nothing"),
        Request::new(service.messages_address, "OPTIONS", "/v1/messages"),
        Request::new(service.ops_address, "GET", "/metrics"),
    ];
    for address in service.addresses() {
        requests.extend(["/livez", "/readyz", "/v1/nothing"].map(|path| Request::new(address, "GET", path)));
        requests.extend(["DELETE", "HEAD"].map(|method| Request::new(address, method, "/livez")));
    }
    requests.extend(service.operations());
    requests.extend(service.operations().into_iter().map(|request| request.key(&service.key)));
    let mut seen = std::collections::HashSet::new();
    for request in requests {
        let answer = request.send().await;
        let headers = ["cache-control", "x-content-type-options"].map(|name| answer.header(name));
        assert_eq!(headers, [Some("no-store"), Some("nosniff")], "{}", answer.shown());
        let id = answer.header("x-request-id").unwrap().to_owned();
        assert_well_formed(&id);
        assert!(seen.insert(id), "{}", answer.shown());
    }
}

#[tokio::test]
async fn cause_of_a_500_is_logged_with_the_request_id() {
    let log = Log::start();
    let service = Service::start().await;
    service.sql("ALTER TABLE pets RENAME TO elsewhere");

    let answer = service.call("GET", "/v1/pets").header("x-request-id", "mine-42").send().await;

    assert_eq!((answer.status(), answer.header("x-request-id")), (500, Some("mine-42")));
    let lines = log.lines_of("mine-42");
    let levels: Vec<_> = lines.iter().map(|line| line["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["INFO", "ERROR"], "the failure is logged once: {lines:?}");
    assert!(lines[1]["fields"]["cause"].as_str().unwrap().contains("no such table"), "{lines:?}");
    assert!(!log.text().contains(&service.key));
}

fn assert_well_formed(id: &str) {
    assert!((1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic()), "{id:?}");
}

/// The log of all tests as JSON lines. A subscriber of one thread would miss events that other threads disabled before.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// May be called once per process.
    fn start() -> Self {
        let log = Self::default();
        let sink = log.clone();
        let subscriber = tracing_subscriber::fmt().json().with_max_level(tracing::Level::DEBUG);
        let subscriber = subscriber.with_writer(move || sink.clone()).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The lines of the request with this id.
    fn lines_of(&self, id: &str) -> Vec<serde_json::Value> {
        let lines = self.text();
        let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.filter(|line| line["fields"]["request_id"] == id).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
