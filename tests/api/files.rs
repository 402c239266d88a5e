//! Files and documents: their compression and entity tags.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use testkit::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::service::{REMOVAL, Service};

/// The files of the store listener with an entity tag.
const FILES: [&str; 4] = ["/openapi.json", "/docs/petstore.js", "/docs/scalar.js", "/docs/scalar-licences.txt"];

/// `gzip_is_used_only_if_the_client_accepts_it` has the forms of `Accept-Encoding`.
#[tokio::test]
async fn files_and_metrics_are_compressed_only_if_a_client_accepts_gzip() {
    let service = Service::start().await;
    for path in FILES {
        let plain = service.request("GET", path).header("accept-encoding", "br, gzip;q=0").send().await;
        assert_eq!((plain.status(), plain.header("content-encoding")), (200, None), "{path}");
        assert!(plain.list("vary").contains(&"accept-encoding".to_owned()), "{path}");

        let (head, body) = compressed(service.store_address, path).await;
        assert!(head.contains("vary: accept-encoding\r\n"), "{path}: {head}");
        assert!(body.len() * 4 < plain.body.len() * 3, "{path}: {} of {} bytes", body.len(), plain.body.len());
        assert!(gunzip(body) == plain.body, "{path}");
    }
    let plain = service.metrics().await;
    assert_eq!((plain.header("content-encoding"), plain.list("vary")), (None, vec!["accept-encoding".to_owned()]));
    let (head, body) = compressed(service.ops_address, "/metrics").await;
    assert!(head.contains("vary: accept-encoding\r\n"), "{head}");
    let names =
        |text: &str| text.lines().filter(|line| line.starts_with("# TYPE")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names(&gunzip(body)), names(&plain.body));
}

#[tokio::test]
async fn head_has_the_headers_of_get() {
    let service = Service::start().await;
    for path in FILES {
        for coding in ["identity", "gzip"] {
            let request = |method| service.request(method, path).header("accept-encoding", coding);
            let (get, body) = exchange(service.store_address, request("GET")).await;
            let (head, nothing) = exchange(service.store_address, request("HEAD")).await;
            assert_eq!(stable(&head), stable(&get), "{path}");
            assert!(get.contains(&format!("content-length: {}\r\n", body.len())), "{path}: {get}");
            assert!(nothing.is_empty(), "{path}");
        }
    }
}

#[tokio::test]
async fn current_version_gets_304() {
    let service = Service::start().await;
    for path in FILES {
        let get = |method: &str| service.request(method, path);
        let tag = get("GET").send().await.header("etag").unwrap().to_owned();
        assert!(tag.starts_with('"') && tag.ends_with('"'), "a strong tag: {tag}");
        let (head, _) = compressed(service.store_address, path).await;
        assert!(!head.contains(&tag), "each encoding has a tag of its own: {head}");

        for known in [tag.clone(), format!("W/{tag}"), format!("\"a\",  {tag}"), "*".to_owned()] {
            for method in ["GET", "HEAD"] {
                let unchanged = get(method).header("if-none-match", &known).send().await;
                assert_eq!((unchanged.status(), unchanged.body.as_str()), (304, ""), "{path}: {known}");
                assert_eq!(unchanged.header("etag"), Some(tag.as_str()), "{path}");
                assert_eq!(unchanged.header("cache-control"), Some("no-cache"), "{path}");
                assert!(unchanged.list("vary").contains(&"accept-encoding".to_owned()), "{path}");
            }
        }
        for other in [tag.replace('"', ""), tag.to_uppercase(), "\"\"".to_owned(), String::new()] {
            let changed = get("GET").header("if-none-match", &other).send().await;
            assert_eq!(changed.status(), 200, "{path}: {other}");
        }
        let gzip = get("GET").header("accept-encoding", "gzip").header("if-none-match", &tag.replacen('"', "\"x", 1));
        assert!(exchange(service.store_address, gzip).await.0.starts_with("HTTP/1.1 200 "), "{path}");
    }
}

#[tokio::test]
async fn changed_document_has_another_tag() {
    let service = Service::start().await;
    let before = service.request("GET", "/openapi.json").send().await;
    let tag = before.header("etag").unwrap();
    service.clock.set(REMOVAL);
    let after = service.request("GET", "/openapi.json").header("if-none-match", tag).send().await;
    assert_eq!(after.status(), 200);
    assert_ne!(after.header("etag"), Some(tag));
    assert_ne!(after.body, before.body);
}

/// The head of a response compressed with gzip, and its body.
async fn compressed(address: SocketAddr, path: &str) -> (String, Vec<u8>) {
    let (head, body) = exchange(address, Request::new(address, "GET", path).header("accept-encoding", "gzip")).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("content-encoding: gzip\r\n"), "{path}: {head}");
    (head, body)
}

/// Sends a request and reads a response whose body may be binary.
async fn exchange(address: SocketAddr, request: Request) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&request.header("connection", "close").bytes()).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    let end = response.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let body = response.split_off(end);
    (String::from_utf8(response).unwrap(), body)
}

/// The headers that are the same for two equal requests.
fn stable(head: &str) -> Vec<&str> {
    head.lines().filter(|line| !line.starts_with("x-request-id") && !line.starts_with("date")).collect()
}

/// Decompresses with gzip, which is independent of the service's implementation.
fn gunzip(compressed: Vec<u8>) -> String {
    let mut gunzip = Command::new("gzip").arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = gunzip.stdin.take().unwrap();
    let writing = std::thread::spawn(move || stdin.write_all(&compressed).unwrap());
    let mut plain = String::new();
    gunzip.stdout.take().unwrap().read_to_string(&mut plain).unwrap();
    writing.join().unwrap();
    assert!(gunzip.wait().unwrap().success());
    plain
}
