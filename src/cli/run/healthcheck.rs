//! `petstore healthcheck`

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
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
    match response.map_or_else(|error| Some(error.to_string()), |response| failure(&response)) {
        None => Ok(()),
        Some(why) => Err(format!("{address} is not ready: {why}").into()),
    }
}

async fn request(address: SocketAddr, tls: bool) -> io::Result<Response> {
    let scheme = if tls { "https" } else { "http" };
    let url = format!("{scheme}://{address}{}", Operation::GetReadiness.path()).parse().map_err(io::Error::other)?;
    // The certificate is not verified: it is for the public host name, and the request contains no secret.
    let connector = tls.then(|| tls::client(Trust::Anybody, &[b"http/1.1"]).map(|config| Arc::new(config).into()));
    let client = Client::new(&url, connector.transpose().map_err(io::Error::other)?);
    client.send("GET", &HeaderMap::new(), &[], TIMEOUT).await
}

/// Returns why the service is not ready, from the response's status and message. `None` if it is ready.
fn failure(response: &Response) -> Option<String> {
    let status = response.status.as_u16();
    if status == 200 {
        return None;
    }
    let message = serde_json::from_slice::<Value>(&response.body).ok();
    let message = message.as_ref().and_then(|body| body["message"].as_str());
    Some(message.map_or_else(|| format!("status {status}"), |message| format!("status {status}: {message}")))
}
