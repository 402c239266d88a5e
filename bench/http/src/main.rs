//! Serves the same responses with one of four HTTP servers, set up as its documentation advises, on one thread.
//!
//! `http-servers bounded-http|axum|hyper-util|actix-web` prints the bound address and serves until it is killed. `/hello` has 5
//! bytes, `/big` 1 MB from memory.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

static BIG: [u8; 1_000_000] = [b'x'; 1_000_000];

fn body(path: &str) -> Bytes {
    Bytes::from_static(if path == "/big" { &BIG } else { b"hello" })
}

fn main() -> io::Result<()> {
    let name = std::env::args().nth(1).unwrap_or_default();
    if name == "actix-web" {
        return actix_web::rt::System::new().block_on(actix());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        match name.as_str() {
            "bounded-http" => bounded(listener).await,
            "axum" => axum(listener).await?,
            "hyper-util" => hyper_util(listener).await?,
            _ => return Err(io::Error::other("unknown server")),
        }
        Ok(())
    })
}

async fn bounded(listener: TcpListener) {
    let service = bounded_http::service_fn(async |request: Request<_>, _| -> Response<Full<Bytes>> {
        Response::new(body(request.uri().path()).into())
    });
    bounded_http::serve(listener, service, std::future::pending()).await;
}

async fn axum(listener: TcpListener) -> io::Result<()> {
    use axum::serve::ListenerExt;
    let router = axum::Router::new()
        .route("/hello", axum::routing::get(|| async { body("/hello") }))
        .route("/big", axum::routing::get(|| async { body("/big") }));
    let listener = listener.tap_io(|stream| _ = stream.set_nodelay(true));
    axum::serve(listener, router).await
}

async fn hyper_util(listener: TcpListener) -> io::Result<()> {
    use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    // Without a timer, hyper's deadline for heads does nothing.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(10));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let builder = builder.clone();
        tokio::spawn(async move {
            let answer = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| {
                std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(body(request.uri().path())))))
            });
            let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn actix() -> io::Result<()> {
    use actix_web::{App, HttpServer, web};
    let app = || {
        App::new()
            .route("/hello", web::get().to(async || body("/hello")))
            .route("/big", web::get().to(async || body("/big")))
    };
    let server = HttpServer::new(app).workers(1).bind("127.0.0.1:0")?;
    println!("{}", server.addrs()[0]);
    server.run().await
}
