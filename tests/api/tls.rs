//! The doors through TLS: what is different, and that the limits of connections hold there too.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use petstore::config::{BaseUrl, Network};
use petstore::server::{Limits, Stop, Tls};
use rustls::version::{TLS12, TLS13};
use testkit::{Certificate, Request, Response, raw, read_response, read_response_from, read_to_end, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::service::{Service, Setup};

const SHORT: Duration = Duration::from_millis(600);
const LIVE: &str = "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";
const HSTS: &str = "strict-transport-security";

/// A service whose doors speak TLS, and its certificate.
struct Secure {
    service: Service,
    certificate: Certificate,
    _folder: tempfile::TempDir,
}

impl Secure {
    async fn start(limits: impl FnOnce(&mut Limits)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificate = Certificate::of_localhost(folder.path(), "server");
        let tls = Tls::load(&certificate.file, &certificate.key).unwrap();
        let mut setup = Setup { tls: Some(tls), ..Setup::default() };
        limits(&mut setup.limits);
        Self { service: Service::start_with(setup).await, certificate, _folder: folder }
    }

    fn doors(&self) -> [SocketAddr; 3] {
        [self.service.store_address, self.service.messages_address, self.service.ops_address]
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        self.certificate.connect(self.service.store_address).await
    }

    async fn send(&self, request: Request) -> Response {
        request.send_over(self.connect().await).await
    }

    async fn read_response(&self, stream: &mut TlsStream<TcpStream>) -> Response {
        soon(read_response_from(self.service.store_address, stream)).await
    }

    /// A POST of an animal, up to what says how its body is framed and begins.
    fn begun_post(&self, framing: &str) -> String {
        let key = &self.service.key;
        format!(
            "POST /v1/pets HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
             {framing}"
        )
    }
}

#[tokio::test]
async fn listeners_support_tls_1_2_and_1_3_with_http_1_1() {
    let secure = Secure::start(|_| {}).await;
    for door in secure.doors() {
        for version in [&TLS12, &TLS13] {
            let stream = secure.certificate.try_connect(door, &[version]).await.unwrap();
            let tls = stream.get_ref().1;
            assert_eq!((tls.protocol_version(), tls.alpn_protocol()), (Some(version.version), Some(&b"http/1.1"[..])));
            let answer = Request::new(door, "GET", "/livez").send_over(stream).await;
            assert_eq!((answer.status(), answer.header(HSTS)), (200, Some("max-age=31536000")));
        }
    }
}

#[tokio::test]
async fn api_uses_https_addresses() {
    let secure = Secure::start(|_| {}).await;
    let service = &secure.service;
    let create = service.request("POST", "/v1/pets").key(&service.key).json(r#"{"name":"Rex","categoryId":3}"#);
    let created = secure.send(create).await;
    assert_eq!(created.status(), 201);
    assert_eq!(created.header("location"), Some(format!("https://{}/v1/pets/1", service.store_address).as_str()));
    let document = secure.send(service.request("GET", "/openapi.json")).await;
    assert_eq!(document.json()["servers"][0]["url"], format!("https://{}/v1", service.store_address));
    let refused = secure.send(service.request("GET", "/v1/pets")).await;
    assert_eq!((refused.code().as_str(), refused.header(HSTS)), ("missing_api_key", Some("max-age=31536000")));
}

#[tokio::test]
async fn session_cookie_is_secure_and_host_only() {
    let secure = Secure::start(|_| {}).await;
    let origin = format!("https://{}", secure.service.store_address);
    let post = async |path: &str, origin: &str| {
        let request = secure.service.request("POST", path).header("origin", origin);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        secure.send(request.body("email=bo%40example.com&password=correct+horse+battery")).await
    };
    assert_eq!(post("/sign-up", &origin.replace("https", "http")).await.status(), 403, "that page is not ours");
    assert_eq!(post("/sign-up", &origin).await.status(), 303);
    let signed_in = post("/sign-in", &origin).await;
    assert_eq!(signed_in.status(), 303);
    let cookie = signed_in.header("set-cookie").unwrap();
    let (value, attributes) = cookie.split_once("; ").unwrap();
    assert!(value.starts_with("__Host-petstore="), "{cookie}");
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax; Secure");
    let overview = secure.send(secure.service.request("GET", "/").header("cookie", value)).await;
    assert!(overview.body.contains("Sign out"), "{}", overview.body);
}

#[tokio::test]
async fn hsts_requires_tls_or_a_trusted_tls_proxy() {
    let https = BaseUrl::parse("https://shop.example/v1").unwrap();
    let proxy = Network::parse("10.0.0.1").unwrap();
    for (base_url, trusted_proxies, told) in [
        (None, vec![], None),
        (Some(https.clone()), vec![], None),
        (None, vec![proxy], None),
        (Some(https), vec![proxy], Some("max-age=31536000")),
    ] {
        let service = Service::start_with(Setup { base_url, trusted_proxies, ..Setup::default() }).await;
        assert_eq!(service.get("/v1/pets").await.header(HSTS), told);
        assert_eq!(Request::new(service.ops_address, "GET", "/livez").send().await.header(HSTS), None);
    }
}

#[tokio::test]
async fn plain_http_on_a_tls_listener_is_explained() {
    let secure = Secure::start(|_| {}).await;
    for door in secure.doors() {
        let mut stream = TcpStream::connect(door).await.unwrap();
        stream.write_all(b"GET /v1/pets HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\n\r\n").await.unwrap();
        let answer = soon(read_response(&mut stream)).await;
        assert_eq!((answer.status(), answer.code().as_str()), (400, "invalid_value"));
        assert_eq!(answer.json()["message"], "This port speaks TLS: the address begins with https://.");
        assert_eq!(soon(read_to_end(&mut stream)).await, "", "nothing follows");
    }
    // What is neither gets an alert, or nothing.
    assert!(!soon(raw(secure.service.store_address, b"hello\r\n\r\n")).await.contains("HTTP"));
    assert_eq!(secure.send(secure.service.request("GET", "/livez")).await.status(), 200);
}

#[tokio::test]
async fn stalled_handshake_is_closed_and_frees_its_slot() {
    let secure = Secure::start(|limits| (limits.head, limits.connections) = (SHORT, 4)).await;
    // The head of a record that announces 512 bytes, of which none or one comes.
    let begun: [&[u8]; 3] = [b"", b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\x02\x00\x01"];
    let start = Instant::now();
    let mut stalled = Vec::new();
    for begun in begun {
        let mut stream = TcpStream::connect(secure.service.store_address).await.unwrap();
        stream.write_all(begun).await.unwrap();
        stalled.push(stream);
    }
    let mut dripping = stalled.pop().unwrap();
    let answer = secure.send(secure.service.request("GET", "/livez")).await;
    assert_eq!(answer.status(), 200, "there is a place left, and the others hold nobody up");

    for mut stream in stalled {
        assert_eq!(soon(read_to_end(&mut stream)).await, "");
        assert!(start.elapsed() >= SHORT, "not before its time");
    }
    soon(async {
        while dripping.write_all(b"\x00").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;

    let mut open = Vec::new();
    for _ in 0..4 {
        let mut stream = soon(secure.connect()).await;
        stream.write_all(LIVE.as_bytes()).await.unwrap();
        assert_eq!(secure.read_response(&mut stream).await.status(), 200);
        open.push(stream);
    }
}

#[tokio::test]
async fn slow_heads_and_bodies_are_408_over_tls() {
    let secure = Secure::start(|limits| (limits.head, limits.request) = (SHORT, SHORT)).await;
    for begun in ["GET /v1/pets HTT".to_owned(), secure.begun_post("content-length: 40\r\n\r\n{")] {
        let mut stream = secure.connect().await;
        let start = Instant::now();
        stream.write_all(begun.as_bytes()).await.unwrap();
        let answer = secure.read_response(&mut stream).await;
        assert!(start.elapsed() >= SHORT, "not before its time");
        assert_eq!((answer.status(), answer.code().as_str()), (408, "request_timeout"));
        // An end without TLS's own word for it would be an error here.
        assert_eq!(soon(read_to_end(&mut stream)).await, "", "nothing follows");
    }
}

#[tokio::test]
async fn idle_connection_is_closed_silently() {
    let secure = Secure::start(|limits| (limits.head, limits.idle) = (SHORT, SHORT)).await;
    let mut fresh = secure.connect().await;
    assert_eq!(soon(read_to_end(&mut fresh)).await, "");
    let mut used = secure.connect().await;
    used.write_all(LIVE.as_bytes()).await.unwrap();
    assert_eq!(secure.read_response(&mut used).await.status(), 200);
    assert_eq!(soon(read_to_end(&mut used)).await, "");
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let secure = Secure::start(|limits| (limits.head, limits.answer) = (SHORT, SHORT)).await;
    let name = "🦊".repeat(255);
    for _ in 0..100 {
        let pet = format!(r#"{{"name":"{name}","categoryId":3}}"#);
        secure.service.store.create_pet(petstore::http::parse_new_pet(&pet).unwrap(), None).await.unwrap();
    }
    let list =
        format!("GET /v1/pets?limit=100 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", secure.service.key);
    // One answer that waits within TLS alone, and so many that the network takes no more requests either.
    let mut stream = secure.connect().await;
    soon(async {
        while stream.write_all(list.as_bytes()).await.is_ok() && stream.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let answer = secure.send(secure.service.request("GET", "/livez")).await;
    assert_eq!(answer.status(), 200, "others are served");
}

#[tokio::test]
async fn stop_completes_requests_in_flight_over_tls() {
    let mut secure = Secure::start(|_| {}).await;
    let body = r#"{"name":"Rex","categoryId":3}"#;
    let mut under_way = secure.connect().await;
    let framing = format!("content-length: {}\r\nexpect: 100-continue\r\n\r\n", body.len());
    under_way.write_all(secure.begun_post(&framing).as_bytes()).await.unwrap();
    assert_eq!(secure.read_response(&mut under_way).await.status(), 100, "the request is under way");
    let mut idle = secure.connect().await;
    idle.write_all(LIVE.as_bytes()).await.unwrap();
    assert_eq!(secure.read_response(&mut idle).await.status(), 200);
    let mut shaking = TcpStream::connect(secure.service.store_address).await.unwrap();
    // One more that was served shows that the one before was accepted.
    assert_eq!(secure.send(secure.service.request("GET", "/livez")).await.status(), 200);

    secure.service.ask_to_stop(Stop::Drain);

    assert_eq!(soon(read_to_end(&mut idle)).await, "");
    assert_eq!(soon(shaking.read(&mut [0])).await.unwrap(), 0);
    under_way.write_all(body.as_bytes()).await.unwrap();
    let answer = secure.read_response(&mut under_way).await;
    assert_eq!((answer.status(), answer.header("connection")), (201, Some("close")));
    assert_eq!(soon(read_to_end(&mut under_way)).await, "");
    drop((under_way, idle, shaking));
    soon(secure.service.stopped()).await;
}
