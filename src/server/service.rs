//! The server's interface to the program that it serves.

use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Body;

use super::body::TimedBody;
use super::counters::Connections;

/// Answers the requests of one listener. Cheap to clone: each connection has its own.
pub trait Service: Clone + Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Answers a request that came from `peer`.
    fn answer(
        &self,
        request: Request<TimedBody>,
        peer: IpAddr,
    ) -> impl Future<Output = Result<Response<Self::Body>, NoResponse>> + Send;

    /// The counters of this listener's connections.
    fn connections(&self) -> &Connections;

    /// Returns the bytes of a whole HTTP/1.1 response that ends a connection without a request to answer.
    fn reject(&self, why: Rejection) -> Vec<u8>;
}

/// How a connection ends instead of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoResponse {
    Close,
    /// With a TCP reset.
    Reset,
}

/// Why a connection ends before its first, or next, request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// All connections are taken.
    ConnectionLimit,
    /// The head of a request did not arrive within this time.
    HeadTimeout(Duration),
    /// The client speaks plain HTTP to a listener that speaks TLS.
    TlsRequired,
}
