//! Promise 21: no bytes after or inside a malformed request are taken for another request.
//!
//! Every case contains a whole request, `SMUGGLED`, at a place that one HTTP parser takes for a body and another for the
//! next request. A service that responds to it could give one client the response to another.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use testkit::{Random, soon, trial};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::service::{Service, Setup};

const SMUGGLED: &str = "GET /livez HTTP/1.1\r\nhost: x\r\nx-request-id: smuggled\r\n\r\n";
const AFTER: &str = "GET /livez HTTP/1.1\r\nhost: x\r\nx-request-id: after\r\nconnection: close\r\n\r\n";
const AT_ONCE: usize = 16;

/// The reaction that a case requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The service responds with an error or not at all, and closes the connection.
    Refused,
    /// The service responds with any status and `Connection: close`, and closes the connection.
    Closed,
    /// The service accepts the request, as the RFC allows, and responds to the request after it.
    Accepted,
}

struct Case {
    name: String,
    bytes: Vec<u8>,
    fate: Fate,
}

/// Header lines that contradict each other about the body, or are invalid.
fn framings() -> Vec<(String, Fate)> {
    let length = SMUGGLED.len();
    let mut framings = Vec::new();
    let lengths =
        ["+5", "-5", "5, 5", "5,6", "5 5", "0x5", "5.0", "5e0", "", "five", "\"5\"", "5;", "٥", "1_0", "5\u{b}"];
    for odd in lengths.into_iter().chain(["18446744073709551616", "99999999999999999999999999"]) {
        framings.push((format!("content-length: {odd}\r\n"), Fate::Refused));
    }
    for (first, second) in [("0".to_owned(), format!("{length}")), (format!("{length}"), "0".into())] {
        framings.push((format!("content-length: {first}\r\ncontent-length: {second}\r\n"), Fate::Refused));
    }
    for encoding in ["chunked", "Chunked", "CHUNKED", " chunked", "chunked "] {
        framings.push((format!("content-length: {length}\r\ntransfer-encoding: {encoding}\r\n"), Fate::Closed));
        framings.push((format!("transfer-encoding: {encoding}\r\ncontent-length: {length}\r\n"), Fate::Closed));
    }
    let encodings = "identity|xchunked|chunkedx|chunked, identity|chunked, chunked|gzip, chunked|identity, chunked|\
                     chunked;q=1|\"chunked\"||,|chunked,|,chunked|chunk ed|chunked\u{b}|\u{b}chunked|x";
    for odd in encodings.split('|') {
        framings.push((format!("transfer-encoding: {odd}\r\n"), Fate::Refused));
        framings.push((format!("content-length: {length}\r\ntransfer-encoding: {odd}\r\n"), Fate::Refused));
    }
    for odd in [
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
        "transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding : chunked\r\n",
        "transfer-encoding\t: chunked\r\n",
        " transfer-encoding: chunked\r\n",
        "x: y\r\n transfer-encoding: chunked\r\n",
        "transfer-encoding:\r\n chunked\r\n",
        "transfer\0encoding: chunked\r\n",
        "transfer encoding: chunked\r\n",
        "x: y\rtransfer-encoding: chunked\r\n",
        "x: \0\r\n",
        ": x\r\n",
        "no colon\r\n",
        "\u{e4}: x\r\n",
        "host: y\r\n",
        "host : x\r\n",
    ] {
        framings.push((odd.to_owned(), Fate::Refused));
    }
    framings
}

/// Chunked bodies, most of them invalid.
fn chunks() -> Vec<(String, Fate)> {
    let invalid = [
        "x\r\n", "\r\n", "-1\r\n{\r\n", "+1\r\n{\r\n", "0x1\r\n{\r\n", "1g\r\n{\r\n", "1,\r\n{\r\n", "g\r\n",
        "fffffffffffffffff\r\n", "10000000000000000\r\n", "1\r{\r\n0\r\n\r\n", "2\r\n{}x\r\n0\r\n\r\n",
        "2\r\n{}0\r\n\r\n", "1\r\n{}\r\n0\r\n\r\n", "2;\n\r\n{}\r\n0\r\n\r\n", "2;a=\"\n\r\n{}\r\n0\r\n\r\n",
        "0\r\nno colon\r\n\r\n", "0\r\n: x\r\n\r\n", "0\r\nx\0: y\r\n\r\n", "0\rx\r\n\r\n",
        "2\r\n{}\r\n0\r\nx y: z\r\n\r\n",
    ];
    // Some parsers accept a bare line feed. Only CRLF ends a chunk's line.
    let bare = [
        "2\n{}\r\n0\r\n\r\n", "2 \n{}\r\n0\r\n\r\n", "2;a=b\n{}\r\n0\r\n\r\n", "2\r\n{}\n0\r\n\r\n",
        "2\r\n{}\r\n0\n\r\n", "2\r\n{}\r\n0\n\n", "0\n\n", "0;a=b\n\r\n",
    ];
    let long = [
        format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(32 * 1024)),
        format!("2\r\n{{}}\r\n0\r\n{}\r\n", "x: y\r\n".repeat(2_000)),
        format!("2\r\n{{}}\r\n0\r\nx: {}\r\n\r\n", "y".repeat(64 * 1024)),
    ];
    let refused = invalid.into_iter().chain(bare).map(str::to_owned).chain(long);
    let mut chunks: Vec<_> = refused.map(|chunks| (chunks, Fate::Refused)).collect();
    // Parsers disagree about the end of such a trailer section, so the connection must close after it.
    for end in ["\n", "x: y\n\n", "x: y\r\n\n", "x: y\n\r\n", "\nx: y\r\n\r\n", "x: y\r\nz\n\n", "\n\n\n"] {
        chunks.push((format!("2\r\n{{}}\r\n0\r\n{end}"), Fate::Closed));
        chunks.push((format!("0\r\n{end}"), Fate::Closed));
    }
    // Framing headers in a trailer are ignored.
    for trailer in ["content-length: 60", "transfer-encoding: chunked", "host: y", "x: y"] {
        chunks.push((format!("2\r\n{{}}\r\n0\r\n{trailer}\r\n\r\n"), Fate::Closed));
    }
    chunks.push(("2\r\n{}\r\n0\r\n\r\n".into(), Fate::Accepted));
    chunks.push(("2 ; a=b\r\n{}\r\n000\r\n\r\n".into(), Fate::Accepted));
    chunks
}

/// Request lines that are invalid or not supported.
fn request_lines() -> Vec<String> {
    let odd = "GET|GET /livez|GET  /livez HTTP/1.1|GET /livez  HTTP/1.1|GET /livez HTTP/1.1 |GET\t/livez\tHTTP/1.1|\
               \u{20}GET /livez HTTP/1.1|GET /li vez HTTP/1.1|GET /livez HTTP/2.0|GET /livez HTTP/1.2|GET /livez HTTP/0.9|\
               GET /livez HTTP/1.10|GET /livez http/1.1|GET /livez HTP/1.1|G\0T /livez HTTP/1.1|GET /liv\0ez HTTP/1.1|\
               GET livez HTTP/1.1|GET /livez\u{b}HTTP/1.1|G(T /livez HTTP/1.1|/livez HTTP/1.1|PRI * HTTP/2.0|\
               GET http:// HTTP/1.1|GET /livez#x HTTP/1.1|GET /livez?a#x HTTP/1.1|GET /#/livez HTTP/1.1|\
               GET http://x/livez#x HTTP/1.1|\r\nGET /livez# HTTP/1.1|GET ftp://x/livez HTTP/1.1|\
               GET ws://x/livez HTTP/1.1|GET file:///livez HTTP/1.1|CONNECT /livez HTTP/1.1";
    odd.split('|').map(str::to_owned).chain([format!("GET /{} HTTP/1.1", "x".repeat(70_000))]).collect()
}

fn cases(key: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let json = "content-type: application/json\r\n";
    let authorized = format!("authorization: Bearer {key}\r\n{json}");
    let heads = [
        ("POST /v1/pets", authorized.as_str()),
        ("POST /v1/pets", json),
        ("GET /v1/pets", authorized.as_str()),
        ("GET /livez", ""),
        ("PUT /nothing", ""),
    ];
    for (line, headers) in heads {
        let head = format!("{line} HTTP/1.1\r\nhost: x\r\n{headers}");
        for (framing, fate) in framings() {
            // By its chunks the body ends before the smuggled request, by its length after it.
            let body = if framing.contains("chunked") { format!("0\r\n\r\n{SMUGGLED}") } else { SMUGGLED.to_owned() };
            cases.push(Case::new(&format!("{line} {framing:?}"), &format!("{head}{framing}\r\n{body}"), fate));
        }
        for (chunks, fate) in chunks() {
            // A body that is not read closes the connection, so any status is allowed.
            let read = headers.contains("Bearer");
            let fate = if read { fate } else { Fate::Closed };
            let request = format!("{head}transfer-encoding: chunked\r\n\r\n{chunks}");
            let inside = if fate == Fate::Accepted { "" } else { SMUGGLED };
            let name = format!("{line} chunks {chunks:.40}");
            cases.push(Case::new(&name, &format!("{request}{inside}"), fate));
        }
    }
    for line in request_lines() {
        let request = format!("{line}\r\nhost: x\r\ncontent-length: {}\r\n\r\n{SMUGGLED}", SMUGGLED.len());
        cases.push(Case::new(&format!("{line:.40}"), &request, Fate::Refused));
    }
    let long = "y".repeat(64 * 1024);
    for head in [
        "GET /livez HTTP/1.1\r\n\r\n".to_owned(),
        "GET /livez HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n".into(),
        "GET /livez HTTP/1.1\r\nhost: x y\r\n\r\n".into(),
        "GET /livez HTTP/1.1\r\nhost: x/../y\r\n\r\n".into(),
        "GET /livez HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".into(),
        format!("GET /livez HTTP/1.1\r\nhost: x\r\nx: {long}\r\n\r\n"),
        format!("GET /livez HTTP/1.1\r\nhost: x\r\n{}\r\n", "x: y\r\n".repeat(101)),
        format!("GET /livez HTTP/1.1\r\nhost: x\r\n{long}: y\r\n\r\n"),
    ] {
        cases.push(Case::new(&format!("{head:.60}"), &format!("{head}{SMUGGLED}"), Fate::Refused));
    }
    cases
}

impl Case {
    fn new(name: &str, request: &str, fate: Fate) -> Self {
        Self { name: name.to_owned(), bytes: format!("{request}{AFTER}").into_bytes(), fate }
    }

    /// Sends the case in pieces, shuts down the sending side, and reads until the connection ends.
    async fn responses(&self, address: SocketAddr, cuts: &[usize]) -> String {
        let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
        let sending = async {
            let mut rest = &self.bytes[..];
            for cut in cuts {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                rest = after;
                // The service may have closed the connection already.
                if write.write_all(piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
            let _ = write.write_all(rest).await;
            // An incomplete request stays incomplete. hyper does not respond to a complete one after a shutdown.
            if self.fate != Fate::Accepted {
                let _ = write.shutdown().await;
            }
        };
        let mut responses = Vec::new();
        // A reset after the response is allowed.
        let (_, _) = tokio::join!(sending, read.read_to_end(&mut responses));
        String::from_utf8_lossy(&responses).into_owned()
    }

    /// Describes the violation, if there is one.
    fn complaint(&self, responses: &str) -> Option<String> {
        let statuses = responses.split("HTTP/1.").skip(1).map(|response| response[2..5].parse().unwrap_or(0));
        let statuses: Vec<u16> = statuses.collect();
        let refused = |status: &u16| (400..500).contains(status);
        let fine = match self.fate {
            Fate::Refused => statuses.len() <= 1 && statuses.iter().all(refused),
            Fate::Closed => statuses.len() == 1 && responses.contains("connection: close\r\n"),
            Fate::Accepted => statuses.len() == 2 && responses.contains("x-request-id: after\r\n"),
        };
        let smuggled = responses.contains("smuggled");
        (smuggled || !fine).then(|| format!("{:?} ({:?}): {responses}", self.name, self.fate))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_requests_never_desynchronise() {
    // The service waits for missing bytes until these limits.
    let mut setup = Setup::default();
    (setup.limits.head, setup.limits.request) = (Duration::from_secs(10), Duration::from_secs(10));
    let service = Service::start_with(setup).await;
    let cases = cases(&service.key);
    let mut random = Random::from_seed();
    let rounds = trial::rounds(cases.len() as u32) as usize;
    assert!(rounds >= 300, "{rounds}");
    let runs = (0..rounds).map(|round| {
        let case = &cases[round % cases.len()];
        let cuts = (0..random.below(4)).map(|_| 1 + random.below(80) as usize).collect::<Vec<_>>();
        let address = service.store_address;
        async move { case.complaint(&soon(case.responses(address, &cuts)).await) }
    });
    let complaints: Vec<_> = stream::iter(runs).buffer_unordered(AT_ONCE).collect().await;
    let complaints: Vec<_> = complaints.into_iter().flatten().collect();
    assert!(complaints.is_empty(), "{} of {rounds}:\n{}", complaints.len(), complaints.join("\n"));
    assert_eq!(service.get("/livez").await.status(), 200);
    trial::measured(&format!("{rounds} malformed requests of {} kinds, 0 desynchronised", cases.len()));
}

/// Control: a server that uses the first `Content-Length` and ignores `Transfer-Encoding` is detected.
#[tokio::test]
async fn desynchronised_server_is_detected() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve_by_first_length(stream));
        }
    });
    let mut fooled = 0;
    for case in cases("no key").into_iter().filter(|case| case.fate != Fate::Accepted) {
        let complaint = case.complaint(&soon(case.responses(address, &[])).await);
        fooled += u32::from(complaint.is_some_and(|complaint| complaint.contains("x-request-id: smuggled")));
    }
    assert!(fooled >= 20, "{fooled}");
}

async fn serve_by_first_length(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let mut rest = String::from_utf8_lossy(&bytes).into_owned();
    while let Some((head, after)) = rest.clone().split_once("\r\n\r\n") {
        let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        let length = value("content-length:").parse().unwrap_or(0);
        let id = value("x-request-id:");
        let response = format!("HTTP/1.1 200 OK\r\nx-request-id: {id}\r\ncontent-length: 0\r\n\r\n");
        let _ = stream.write_all(response.as_bytes()).await;
        rest = after.get(length..).unwrap_or_default().to_owned();
    }
}
