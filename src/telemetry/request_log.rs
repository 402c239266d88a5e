//! The log line of a request.

use std::net::IpAddr;
use std::time::Duration;

use axum::http::header::USER_AGENT;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};

use super::trace_context::{TraceId, TraceParent};
use crate::domain::{AccountId, KeyId};

/// Maximum length of a logged user agent. Browsers send about 120 characters.
const USER_AGENT_LENGTH: usize = 256;

/// A log entry about a request, before its response.
#[derive(Debug)]
pub struct RequestLogEntry {
    method: Method,
    path: String,
    client_address: IpAddr,
    /// `None` if the request has no `User-Agent`, or one that is not visible ASCII.
    user_agent: Option<String>,
    /// The trace that records the request: its caller's, or one that begins with it.
    trace_id: Option<TraceId>,
    pub simulated: bool,
}

impl RequestLogEntry {
    /// `client_address` is the address of the client itself, not that of a trusted proxy. `recorded` is the trace of the
    /// request's span, if it has one.
    pub fn of(request: &Parts, client_address: IpAddr, recorded: Option<TraceId>) -> Self {
        let user_agent = request.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        Self {
            method: request.method.clone(),
            // Without the query, which is private.
            path: request.uri.path().to_owned(),
            // IPv4 clients of a listener for IPv6 have mapped addresses.
            client_address: client_address.to_canonical(),
            user_agent: user_agent.map(|agent| agent[..agent.len().min(USER_AGENT_LENGTH)].to_owned()),
            trace_id: recorded.or_else(|| TraceParent::of(&request.headers).map(|parent| parent.trace)),
            simulated: false,
        }
    }

    /// `key` is that of the request, valid or not.
    pub fn write(
        self,
        id: &HeaderValue,
        account: Option<AccountId>,
        key: Option<KeyId>,
        route: &str,
        status: StatusCode,
        took: Duration,
    ) {
        let Self { method, path, client_address, user_agent, trace_id, simulated } = self;
        tracing::info!(
            request_id = id.to_str().unwrap_or_default(),
            trace_id = trace_id.map(tracing::field::display),
            account = account.map(|account| account.0),
            key = key.map(|key| key.0),
            %method,
            route,
            path,
            %client_address,
            user_agent,
            status = status.as_u16(),
            simulated = simulated.then_some(true),
            seconds = took.as_secs_f64(),
            "request"
        );
    }
}
