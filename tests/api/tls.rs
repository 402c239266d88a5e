//! The listeners over TLS: what differs. `server.rs` tests the deadlines with and without TLS.

use std::process::Command;
use std::time::{Duration, Instant};

use petstore::api::{BaseUrl, Network};
use rustls::version::{TLS12, TLS13};
use testkit::{Request, raw, read_response, read_to_end, soon, until};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::service::{REX, Service, Setup};
use crate::transport::Transport;

/// Longer than a handshake on a busy machine.
const LIMIT: Duration = Duration::from_secs(5);
const HSTS: &str = "strict-transport-security";

#[tokio::test]
async fn listeners_support_tls_1_2_and_1_3_with_http_1_1() {
    let transport = Transport::tls(|_| {}).await;
    for address in transport.service.addresses() {
        for version in [&TLS12, &TLS13] {
            let certificate = transport.certificate.as_ref().unwrap();
            let stream = certificate.try_connect(address, &[version]).await.unwrap();
            let tls = stream.get_ref().1;
            assert_eq!((tls.protocol_version(), tls.alpn_protocol()), (Some(version.version), Some(&b"http/1.1"[..])));
            let answer = Request::new(address, "GET", "/livez").send_over(stream).await;
            assert_eq!((answer.status(), answer.header(HSTS)), (200, Some("max-age=31536000")));
        }
    }
}

#[tokio::test]
async fn client_that_offers_only_http_1_0_is_answered() {
    let transport = Transport::tls(|_| {}).await;
    let url = format!("https://{}/livez", transport.service.ops_address);
    let curl = move || Command::new("curl").args(["--http1.0", "-ksSf", "--noproxy", "*", &url]).output().unwrap();
    let answered = tokio::task::spawn_blocking(curl).await.unwrap();
    assert!(answered.status.success(), "{answered:?}");
}

#[tokio::test]
async fn api_uses_https_addresses() {
    let transport = Transport::tls(|_| {}).await;
    let service = &transport.service;
    let created = transport.send(service.call("POST", "/v1/pets").json(REX)).await;
    assert_eq!(created.header("location"), Some(format!("https://{}/v1/pets/1", service.store_address).as_str()));
    let rejected = transport.send(service.request("GET", "/v1/pets")).await;
    assert_eq!((rejected.code().as_str(), rejected.header(HSTS)), ("missing_api_key", Some("max-age=31536000")));
}

#[tokio::test]
async fn hsts_requires_tls_or_a_trusted_tls_proxy() {
    let https = BaseUrl::parse("https://shop.example/v1").unwrap();
    let proxy = Network::parse("10.0.0.1").unwrap();
    for (base_url, trusted_proxies, expected) in [
        (None, vec![], None),
        (Some(https.clone()), vec![], None),
        (None, vec![proxy], None),
        (Some(https), vec![proxy], Some("max-age=31536000")),
    ] {
        let service = Service::start_with(Setup { base_url, trusted_proxies, ..Setup::default() }).await;
        assert_eq!(service.get("/v1/pets").await.header(HSTS), expected);
        assert_eq!(Request::new(service.ops_address, "GET", "/livez").send().await.header(HSTS), None);
    }
}

#[tokio::test]
async fn plain_http_on_a_tls_listener_is_explained() {
    let transport = Transport::tls(|_| {}).await;
    for address in transport.service.addresses() {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /v1/pets HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\n\r\n").await.unwrap();
        let answer = soon(read_response(&mut stream)).await;
        assert_eq!((answer.status(), answer.code().as_str()), (400, "invalid_value"));
        assert_eq!(answer.json()["message"], "This port requires TLS: use https://.");
        assert_eq!(soon(read_to_end(&mut stream)).await, "");
    }
    // Other bytes get an alert or nothing.
    assert!(!soon(raw(transport.service.store_address, b"hello\r\n\r\n")).await.contains("HTTP"));
    assert_eq!(transport.send(transport.service.request("GET", "/livez")).await.status(), 200);
}

#[tokio::test]
async fn stalled_handshake_is_closed_and_frees_its_slot() {
    let transport = Transport::tls(|limits| (limits.head, limits.connections) = (LIMIT, Some(4))).await;
    // The header of a record that announces 512 bytes, followed by none or one of them.
    let begun: [&[u8]; 3] = [b"", b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\x02\x00\x01"];
    let start = Instant::now();
    let mut stalled = Vec::new();
    for begun in begun {
        let mut stream = TcpStream::connect(transport.service.store_address).await.unwrap();
        stream.write_all(begun).await.unwrap();
        stalled.push(stream);
    }
    let mut dripping = stalled.pop().unwrap();
    let answer = transport.send(transport.service.request("GET", "/livez")).await;
    assert_eq!(answer.status(), 200, "one slot is left, and the stalled handshakes delay nobody");

    for mut stream in stalled {
        assert_eq!(soon(read_to_end(&mut stream)).await, "");
        assert!(start.elapsed() >= LIMIT, "not before its time");
    }
    until(async || dripping.write_all(b"\x00").await.is_err()).await;

    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(soon(transport.connect()).await);
        transport.assert_answers(open.last_mut().unwrap()).await;
    }
}
