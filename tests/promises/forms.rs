//! Somebody who fills in the console's forms.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;
use testkit::Server;
use testkit::blocking::Response;

pub const PASSWORD: &str = "correct horse battery";

/// Sends a form as one of our pages would, with more `headers`, each ending in CRLF.
pub fn post(service: &Server, path: &str, headers: &str, fields: &[(&str, &str)]) -> Response {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let (host, length) = (&service.store, body.len());
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n{headers}\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    let began = Instant::now();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, text, took: began.elapsed() }
}

/// Signs up; returns the header with the session's cookie.
pub fn sign_up(service: &Server, email: &str) -> String {
    let answer = post(service, "/sign-up", "", &[("email", email), ("password", PASSWORD)]);
    let cookie = answer.text.split_once("set-cookie: ").expect("signed in").1;
    format!("Cookie: {}\r\n", cookie.split_once(';').unwrap().0)
}
