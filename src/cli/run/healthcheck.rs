//! `petstore healthcheck`

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::http::HeaderMap;
use serde_json::Value;

use crate::api::{Listener, Operation, reachable};
use crate::cli::Outcome;
use crate::config::ServiceSettings;
use crate::net::http_client::{Client, Response};
use crate::net::tls::{self, Trust};

/// Maximum time until the status of the response, including the connection.
const TIMEOUT: Duration = Duration::from_secs(3);

pub fn run(service: &ServiceSettings) -> Outcome {
    let mut listeners = [Listener::Ops, Listener::Store, Listener::Messages].into_iter();
    let listener = listeners.find(|listener| service.listeners.contains(listener));
    let address = service.address(listener.ok_or("no listener is configured")?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let response = runtime.block_on(request(reachable(address), service.tls_cert.is_some()));
    let checked = response.map_err(|error| error.to_string()).and_then(|response| check(&response));
    checked.map_err(|why| format!("{address} is not ready: {why}").into())
}

async fn request(address: SocketAddr, tls: bool) -> io::Result<Response> {
    let scheme = if tls { "https" } else { "http" };
    let url = format!("{scheme}://{address}{}", Operation::GetReadiness.path()).parse().map_err(io::Error::other)?;
    // The certificate is not verified: it is for the public host name, and the request contains no secret.
    let connector = tls.then(|| tls::connector(Trust::Anybody)).transpose().map_err(io::Error::other)?;
    Client::new(&url, connector).send("GET", &HeaderMap::new(), &[], TIMEOUT).await
}

/// Fails unless the service is ready, with the response's status and message.
fn check(response: &Response) -> Result<(), String> {
    let status = response.status.as_u16();
    if status == 200 {
        return Ok(());
    }
    let body = serde_json::from_slice::<Value>(&response.body).unwrap_or_default();
    let message = body["message"].as_str().map_or_else(String::new, |message| format!(": {message}"));
    Err(format!("status {status}{message}"))
}
