//! A public listener, and one for the operator, who can connect even when all public connections are taken. Ctrl-C answers open
//! requests, a second one closes all connections.
//!
//! Run it with `cargo run --example two_listeners`, then `curl localhost:8080` and `curl localhost:8081/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use bounded_http::{Access, Connections, Limits, NoResponse, Server, Service, Stop, TimedBody};
use http::{Request, Response};
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio::signal::ctrl_c;
use tokio::sync::watch;

#[derive(Clone)]
struct Listener {
    access: Access,
    public: Arc<Connections>,
    operator: Arc<Connections>,
}

impl Service for Listener {
    type Body = Full<bytes::Bytes>;

    async fn answer(&self, request: Request<TimedBody>, peer: SocketAddr) -> Result<Response<Self::Body>, NoResponse> {
        let (mut head, body) = request.into_parts();
        bounded_http::framing::check(&mut head, &body).map_err(|_| NoResponse::Reset)?;
        let text = match self.access {
            Access::Public => format!("Hello, {peer}!\n"),
            Access::Operator => format!("connections_open {}\n", self.public.open()),
        };
        Ok(Response::new(text.into()))
    }

    fn connections(&self) -> &Connections {
        match self.access {
            Access::Public => &self.public,
            Access::Operator => &self.operator,
        }
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let public = Listener { access: Access::Public, public: Arc::default(), operator: Arc::default() };
    let operator = Listener { access: Access::Operator, ..public.clone() };
    let mut server = Server::new(TcpListener::bind("127.0.0.1:8080").await?, public);
    server.listeners.push((TcpListener::bind("127.0.0.1:8081").await?, operator, Access::Operator));
    server.limits = Limits { connections: Some(10_000), ..Limits::default() };
    let (stop, stopped) = watch::channel(Stop::No);
    tokio::spawn(async move {
        for stage in [Stop::Drain, Stop::Now] {
            let _ = ctrl_c().await;
            stop.send_replace(stage);
        }
    });
    server.run(stopped).await;
    Ok(())
}
