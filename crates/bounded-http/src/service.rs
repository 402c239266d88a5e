//! The server's interface to the program that it serves.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Body;

use crate::body::TimedBody;
use crate::counters::Connections;
use crate::framing;

/// Answers the requests of one listener. Cheap to clone: each connection has its own.
pub trait Service: Clone + Send + Sync + 'static {
    /// The body of a response.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static;

    /// Answers a request that came from `peer`.
    ///
    /// hyper accepts requests that a proxy may read differently: [`framing::check`] finds them. A panic closes the connection.
    fn answer(
        &self,
        request: Request<TimedBody>,
        peer: SocketAddr,
    ) -> impl Future<Output = Result<Response<Self::Body>, NoResponse>> + Send;

    /// The counters of this listener's connections.
    fn connections(&self) -> &Connections;

    /// Returns the bytes of a whole HTTP/1.1 response that ends a connection without a request to answer.
    fn reject(&self, why: Rejection) -> Vec<u8> {
        why.to_response()
    }
}

/// The end of a connection whose client gets no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoResponse {
    /// As after a response.
    Close,
    /// With a TCP reset.
    Reset,
}

/// Why a connection ends before its first, or next, request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// All connections are taken.
    ConnectionLimit,
    /// The head of a request did not arrive within this time.
    HeadTimeout(Duration),
    /// The client speaks plain HTTP to a listener that speaks TLS.
    TlsRequired,
}

impl Rejection {
    /// Returns a response in plain text: 503 with `Retry-After`, 408 or 400.
    pub fn to_response(self) -> Vec<u8> {
        let (status, why) = match self {
            Self::ConnectionLimit => ("503 Service Unavailable\r\nretry-after: 1", "All connections are taken."),
            Self::HeadTimeout(_) => ("408 Request Timeout", "The head of the request did not arrive in time."),
            Self::TlsRequired => ("400 Bad Request", "This port requires TLS."),
        };
        let length = why.len() + 1;
        let rest = format!("content-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{why}\n");
        format!("HTTP/1.1 {status}\r\n{rest}").into_bytes()
    }
}

/// Returns a service that answers each request with `answer`, and ambiguous ones with 400: see [`framing::check`].
pub fn service_fn<A, F>(answer: A) -> ServiceFn<A>
where
    A: Fn(Request<TimedBody>, SocketAddr) -> F,
{
    ServiceFn { answer, connections: Arc::default() }
}

/// The service of [`service_fn`].
#[derive(Clone, Debug)]
pub struct ServiceFn<A> {
    answer: A,
    connections: Arc<Connections>,
}

impl<A> ServiceFn<A> {
    /// Returns the counters of its connections.
    pub fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.connections)
    }
}

impl<A, F, B> Service for ServiceFn<A>
where
    A: Fn(Request<TimedBody>, SocketAddr) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    type Body = Either<Full<Bytes>, B>;

    async fn answer(&self, request: Request<TimedBody>, peer: SocketAddr) -> Result<Response<Self::Body>, NoResponse> {
        let (mut head, body) = request.into_parts();
        if let Err(ambiguous) = framing::check(&mut head, &body) {
            let mut response = Response::new(Either::Left(format!("{ambiguous}\n").into()));
            *response.status_mut() = http::StatusCode::BAD_REQUEST;
            response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
            return Ok(response);
        }
        Ok((self.answer)(Request::from_parts(head, body), peer).await.map(Either::Right))
    }

    fn connections(&self) -> &Connections {
        &self.connections
    }
}
