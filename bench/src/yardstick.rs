//! The least an HTTP service can do: bare hyper sending petstore's answers as fixed bytes.
//!
//! There is no key check, no JSON, no store and no timeout here. What petstore costs beyond this
//! is what petstore does; what both cost is the kernel's sockets, hyper and the bytes themselves.
//!
//! `yardstick [--listen 127.0.0.1:0] [--threads 1]` prints the address it bound and serves until
//! it is killed.

use std::{env, error::Error, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, runtime};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let options = Options::parse(env::args().skip(1))?;
    // One thread without work stealing is the cheapest runtime there is.
    let runtime = match options.threads {
        1 => runtime::Builder::new_current_thread().enable_io().build()?,
        threads => runtime::Builder::new_multi_thread().worker_threads(threads).enable_io().build()?,
    };
    runtime.block_on(serve(options.listen))
}

async fn serve(address: SocketAddr) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await?;
    println!("{}", listener.local_addr()?);

    let answers = Arc::new(Answers::new());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let answers = Arc::clone(&answers);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(&answers, request));
            // A client that hangs up ends its connection with an error, which is no news here.
            let _ = http1::Builder::new().pipeline_flush(true).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(answers: &Answers, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/v1/pets") => match request.uri().query() {
            Some("limit=100") => (StatusCode::OK, &answers.list_100),
            _ => (StatusCode::OK, &answers.list_20_available),
        },
        (&Method::GET, path) if path.starts_with("/v1/pets/") => (StatusCode::OK, &answers.pet),
        (&Method::POST, "/v1/pets") => (StatusCode::CREATED, &answers.pet),
        (&Method::POST, "/v1/messages") => (StatusCode::ACCEPTED, &answers.message),
        _ => (StatusCode::NOT_FOUND, &answers.nothing),
    };
    if request.method() == Method::POST {
        // The bytes of a body are received, as they must be, and looked at no further.
        request.into_body().collect().await?;
    }

    let mut response = Response::new(Full::new(body.clone()));
    *response.status_mut() = status;
    // hyper adds the length and the date.
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(&REQUEST_ID, HeaderValue::from_static("0199d3a2c4e87b10a5f6c1d2e3f40516"));
    Ok(response)
}

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The bodies, encoded once.
struct Answers {
    list_20_available: Bytes,
    list_100: Bytes,
    pet: Bytes,
    message: Bytes,
    nothing: Bytes,
}

impl Answers {
    fn new() -> Self {
        // Every third animal is available, beginning with the first.
        Self {
            list_20_available: list((1..).step_by(3).take(20)),
            list_100: list(1..=100),
            pet: pet(50_000).into(),
            message: concat!(
                r#"{"id":"msg_0199d3a2c4e87b10a5f6c1d2e3f40516","message":"Hello, number 12345678","#,
                r#""status":"queued","createdAt":"2026-11-20T09:30:00.123Z"}"#
            )
            .into(),
            nothing: r#"{"code":"not_found","message":"There is nothing here.","status":404}"#.into(),
        }
    }
}

fn list(ids: impl Iterator<Item = u32>) -> Bytes {
    let pets: Vec<String> = ids.map(pet).collect();
    format!("[{}]", pets.join(",")).into()
}

/// The animal that `scripts/bench` imports under this id; the script checks that both agree.
fn pet(id: u32) -> String {
    let status = ["available", "pending", "sold"][(id as usize - 1) % 3];
    let category = id % 50;
    format!(r#"{{"id":{id},"name":"animal-{id:05}","categoryId":{category},"status":"{status}"}}"#)
}

struct Options {
    listen: SocketAddr,
    threads: usize,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut options = Self { listen: ([127, 0, 0, 1], 0).into(), threads: 1 };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--listen" => options.listen = value.parse()?,
                "--threads" => options.threads = value.parse()?,
                _ => return Err(format!("unknown option {name}").into()),
            }
        }
        Ok(options)
    }
}
