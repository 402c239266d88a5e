//! Odd requests over HTTP/2, which a proxy turns into HTTP/1.1 for the service.
//!
//! HTTP/2 carries any bytes in names, values and pseudo-headers, and has its own framing of bodies. A proxy that copies
//! them into HTTP/1.1 lets a client write the head of a second request.

use std::net::SocketAddr;
use std::time::Duration;

use testkit::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::proxy_cases::{HOST, LAST, ODD, hidden, one_of, rarely, target};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

type Header = (String, String);

/// A client with a connection that it uses for as many cases as possible.
pub struct Client {
    address: SocketAddr,
    connection: Option<(TcpStream, u32)>,
}

impl Client {
    pub const fn new(address: SocketAddr) -> Self {
        Self { address, connection: None }
    }

    /// Sends a case and a plain request after it. Reads until the end of the response to that, the end of the connection,
    /// or silence. Returns whether the plain request was answered.
    pub async fn exchange(&mut self, random: &mut Random, tag: &str, key: &str, silence: Duration) -> bool {
        let mut bytes = Vec::new();
        let (mut stream, number) = match self.connection.take() {
            Some(open) => open,
            None => {
                let Ok(stream) = TcpStream::connect(self.address).await else { return false };
                stream.set_zero_linger().unwrap();
                bytes.extend_from_slice(PREFACE);
                bytes.extend(frame(SETTINGS, 0, 0, &[]));
                (stream, 1)
            }
        };
        let (headers, body) = case(random, tag, key);
        bytes.extend(request(number, &headers, &body));
        bytes.extend(request(number + 2, &plain(tag, LAST), &[]));
        let _ = timeout(silence, stream.write_all(&bytes)).await;
        let (mut received, mut read) = (Vec::new(), [0; 8192]);
        while let Ok(Ok(count @ 1..)) = timeout(silence, stream.read(&mut read)).await {
            received.extend_from_slice(&read[..count]);
            while let [high, middle, low, kind, flags, one, two, three, four, ..] = received[..] {
                let end = 9 + u32::from_be_bytes([0, high, middle, low]) as usize;
                if received.len() < end {
                    break;
                }
                received.drain(..end);
                let answered = u32::from_be_bytes([one & 0x7f, two, three, four]);
                if answered == number + 2 && kind <= HEADERS && flags & END_STREAM != 0 {
                    self.connection = Some((stream, number + 4));
                    return true;
                }
            }
        }
        false
    }
}

fn plain(tag: &str, kind: char) -> Vec<Header> {
    let headers = [(":method", "GET"), (":scheme", "http"), (":authority", HOST), (":path", "/livez")];
    let mark = ("x-case".to_owned(), format!("{tag}{kind}"));
    headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).chain([mark]).collect()
}

/// Draws the headers and the body of an odd request.
fn case(random: &mut Random, tag: &str, key: &str) -> (Vec<Header>, Vec<u8>) {
    let hidden = hidden(tag);
    let mut headers = plain(tag, ODD);
    headers[0].1 = rarely(random, 4, "POST", "GET|HEAD|CONNECT|OPTIONS|P ST|get|").to_owned();
    headers[3].1 = rarely(random, 2, "/v1/pets", "").to_owned();
    if headers[3].1.is_empty() {
        headers[3].1 = target(random);
    }
    if random.below(2) == 0 {
        headers.push(("authorization".into(), format!("Bearer {key}")));
        headers.push(("content-type".into(), "application/json".into()));
    }
    let body = match random.below(5) {
        0 => hidden.clone(),
        1 => format!("0\r\n\r\n{hidden}"),
        2 => format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len()),
        3 => "{\"name\":1}".into(),
        _ => String::new(),
    };
    let length = body.len();
    for _ in 0..random.below(3) {
        let at = random.index(headers.len() + 1);
        let odd = match random.below(14) {
            0 => ("content-length".into(), one_of(random, "0|1|5|+5|5, 5|0x5|18446744073709551616|").to_owned()),
            1 => ("content-length".into(), length.to_string()),
            2 => ("content-length".into(), format!("{length}\r\nx: y")),
            3 => (
                "transfer-encoding".into(),
                one_of(random, "chunked|identity|gzip, chunked|Chunked| chunked|").to_owned(),
            ),
            4 => ("x".into(), "y\r\ntransfer-encoding: chunked".into()),
            5 => ("x".into(), format!("y\r\n\r\n{hidden}")),
            6 => ("x".into(), format!("y\n\n{hidden}")),
            7 => (format!("x: y\r\n\r\n{hidden}x"), "y".into()),
            8 => (
                one_of(random, "X|x y|x:|x\r|x\n|x\0||:x|transfer-encoding\0|transfer_encoding").to_owned(),
                "chunked".into(),
            ),
            9 => ("connection".into(), one_of(random, "close|keep-alive|content-length|x-request-id").to_owned()),
            10 => ("host".into(), one_of(random, "messages.example.com|pets.example.com|x\r\ny: z|").to_owned()),
            11 => {
                (one_of(random, ":path|:method|:authority|:scheme|:x").to_owned(), "/.well-known/security.txt".into())
            }
            12 => ("te".into(), one_of(random, "trailers|chunked").to_owned()),
            _ => ("expect".into(), "100-continue".into()),
        };
        headers.insert(at, odd);
    }
    // Into the request line and the host.
    match random.below(16) {
        0 => headers[random.index(4)].1 += " HTTP/1.1\r\nhost: x\r\n\r\n",
        1 => headers[random.index(4)].1 += &format!(" HTTP/1.1\r\n\r\n{hidden}"),
        2 => headers[random.index(4)].1 += one_of(random, " |\r|\n|\0|#x|\t|/../.well-known/security.txt|@x|\u{e4}"),
        3 => drop(headers.remove(random.index(4))),
        _ => {}
    }
    (headers, body.into_bytes())
}

fn request(stream: u32, headers: &[Header], body: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        // A literal without indexing and with a new name (RFC 7541, section 6.2.2).
        block.push(0);
        for text in [name, value] {
            write_length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    let ends = if body.is_empty() { END_STREAM } else { 0 };
    let mut frames = frame(HEADERS, END_HEADERS | ends, stream, &block);
    if !body.is_empty() {
        frames.extend(frame(DATA, END_STREAM, stream, body));
    }
    frames
}

/// An integer with a prefix of seven bits (RFC 7541, section 5.1).
fn write_length(block: &mut Vec<u8>, length: usize) {
    if length < 127 {
        block.push(length as u8);
        return;
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    block.push(rest as u8);
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}
