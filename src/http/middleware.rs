//! Everything around the handler of a request: its id, dispatch, CORS, panics, metrics, traces and the log.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::MatchedPath;
use axum::http::header::STRICT_TRANSPORT_SECURITY;
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use axum::middleware::{Next, from_fn};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{Either, Full};
use tower::Service;

use super::auth::{Caller, Simulated};
use super::client_address::{Peer, client_address};
use super::cors::{Cors, is_preflight};
use super::error::{ApiError, Cause, Code};
use super::failed_requests::FailedRequest;
use super::framing;
use super::input::RequestBody;
use super::operations::Operation::{self, GetPet};
use super::operations::Target;
use super::request_id::{X_REQUEST_ID, new_request_id, request_id};
use super::state::Api;
use crate::config::{BaseUrl, Listener, Scheme};
use crate::server::{self, Connections, Rejection, TimedBody};
use crate::telemetry::request_log::RequestLogEntry;
use crate::telemetry::traces::{Recording, Tracer};

const A_YEAR: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// The body of a response: complete for operations, any body for pages.
pub type Sent = Either<Full<Bytes>, Body>;

/// Serves the operations and pages of one listener.
#[derive(Clone, Debug)]
pub struct ListenerService {
    listener: Listener,
    api: Arc<Api>,
    /// `None` if the listener has operations only.
    pages: Option<Router>,
    /// `None` if no page of another origin may call the operations.
    cors: Option<Arc<Cors>>,
    /// True if responses tell browsers to use TLS only (RFC 6797).
    is_https_only: bool,
    logs_requests: bool,
    tracer: Option<Tracer>,
}

impl ListenerService {
    /// The operations of `listener`.
    pub fn new(listener: Listener, api: &Arc<Api>) -> Self {
        Self {
            listener,
            api: Arc::clone(api),
            pages: None,
            cors: Cors::of(listener, &api.addresses).map(Arc::new),
            is_https_only: is_https_only(listener, api),
            logs_requests: false,
            tracer: None,
        }
    }

    /// Adds pages: paths that no operation has.
    pub fn with_pages(self, pages: Router) -> Self {
        Self { pages: Some(pages.layer(from_fn(name_route))), ..self }
    }

    /// Sets whether every request is logged. At level debug it always is.
    pub fn logging(self, logs_requests: bool) -> Self {
        Self { logs_requests, ..self }
    }

    /// Records a span for every request. Not on the operations listener, which only the operator's tools use.
    pub fn tracing(self, tracer: Option<Tracer>) -> Self {
        Self { tracer: tracer.filter(|_| self.listener != Listener::Ops), ..self }
    }

    /// Responds to a request from `peer`. `None` closes the connection without a response.
    ///
    /// Not an `async fn`, because its future would have room for the request twice. hyper moves this future for every
    /// request, so it should be small.
    pub fn answer<B: RequestBody>(
        &self,
        request: Request<B>,
        peer: IpAddr,
    ) -> impl Future<Output = Option<Response<Sent>>> + Send {
        let (head, mut body) = request.into_parts();
        async move {
            let api = &self.api;
            let target = Target::of(self.listener, &head.method, head.uri.path());
            let in_progress = api.traffic.begin(&head.method);
            let id = request_id(&head.headers);
            let is_logged = self.logs_requests || tracing::enabled!(tracing::Level::DEBUG);
            // Boxed, because most requests are not logged.
            let log_entry = is_logged.then(|| {
                let client = client_address(peer, &head.headers, &api.trusted_proxies);
                Box::new(RequestLogEntry::of(&head, client))
            });
            let allowed_origin = self.cors.as_ref().and_then(|cors| cors.allowed_origin(&head.headers));
            let mut caller = Caller::default();
            let tracer = self.tracer.as_ref().filter(|_| !target.at_path().is_some_and(Operation::is_health_check));
            let span = tracer.and_then(|tracer| tracer.begin(&head));
            let answered = if let Err(unclear) = framing::check(&head, &body) {
                Ok(unclear.answer().map(Either::Left))
            } else if let Some(cors) = &self.cors
                && is_preflight(&head)
            {
                Ok(cors.answer_preflight().map(Either::Left))
            } else if let Target::Operation(operation) = target {
                let calling = operation.call(api, &head, &mut body, &mut caller);
                let answered = AssertUnwindSafe(calling).catch_unwind().await;
                answered.map(|answer| {
                    let answer = answer.unwrap_or_else(|error| caller.answer(error));
                    if let (Some(account), Some(code)) = (caller.account, caller.failure) {
                        let is_simulated = caller.simulated != Simulated::Nothing;
                        let request = FailedRequest::new(api.clock.now(), operation, code, is_simulated, &id);
                        api.failed_requests.add(account, request);
                    }
                    answer.map(Either::Left)
                })
            } else {
                // Boxed, because it is large and rarely needed.
                let answering = Box::pin(self.answer_page(target, Request::from_parts(head, body), peer));
                AssertUnwindSafe(answering).catch_unwind().await
            };
            let mut response = answered
                .unwrap_or_else(|panic| ApiError::internal(Cause::of_panic(&*panic).0).answer().map(Either::Left));
            let page;
            let route = match (target.at_path(), response.extensions_mut().remove::<MatchedPath>()) {
                (Some(operation), _) if caller.simulated == Simulated::Nothing => api.traffic.operation(operation),
                (Some(operation), _) => {
                    page = api.traffic.simulated(operation);
                    &page
                }
                (None, Some(path)) => {
                    page = api.traffic.page(path.as_str());
                    &page
                }
                (None, None) => api.traffic.unmatched(),
            };
            let took = in_progress.end(route, response.status());
            let trace = span.as_ref().and_then(Recording::trace);
            if let Some(span) = span {
                span.end(route.template(), response.status(), &id);
            }
            if let Some(mut entry) = log_entry {
                if caller.simulated != Simulated::Nothing {
                    entry.mark_simulated();
                }
                if let Some(trace) = trace {
                    entry.is_in(trace);
                }
                entry.write(&id, caller.account, route.label(), response.status(), took);
            }
            if let Some(cause) = response.extensions_mut().remove() {
                self.log_cause(response.status(), &cause, &id);
            }
            let headers = response.headers_mut();
            self.write_headers(target, &caller, allowed_origin, headers);
            headers.insert(X_REQUEST_ID, id);
            (caller.simulated != Simulated::Drop).then_some(response)
        }
    }

    /// Writes the headers that do not depend on the handler.
    fn write_headers(&self, target: Target, caller: &Caller, origin: Option<HeaderValue>, headers: &mut HeaderMap) {
        if target == Target::Operation(GetPet) {
            self.api.deprecation.announce(headers);
        }
        caller.write_headers(&self.api, headers);
        if self.cors.is_some() {
            Cors::write_headers(origin, headers);
        }
        if self.is_https_only {
            headers.insert(STRICT_TRANSPORT_SECURITY, A_YEAR);
        }
    }

    /// Logs the cause of a 5xx error.
    fn log_cause(&self, status: StatusCode, Cause(cause): &Cause, id: &HeaderValue) {
        let request_id = id.to_str().unwrap_or_default();
        match status {
            // Sampled, because overload and outages reject many requests at once.
            StatusCode::SERVICE_UNAVAILABLE if self.api.traffic.refusals.is_first(cause) => {
                tracing::warn!(request_id, status = status.as_u16(), cause, "request refused");
            }
            StatusCode::SERVICE_UNAVAILABLE => {}
            _ => tracing::error!(request_id, status = status.as_u16(), cause, "request failed"),
        }
    }

    /// Responds to requests for pages, and to those with an unknown path or method.
    async fn answer_page(&self, target: Target, request: Request<impl RequestBody>, peer: IpAddr) -> Response<Sent> {
        if let Some(operation) = target.at_path() {
            return operation.answer_other_method(&self.api).map(Either::Left);
        }
        let Some(pages) = &self.pages else {
            let error = self.api.path_not_found(self.listener, request.headers(), request.uri().path());
            return error.answer().map(Either::Left);
        };
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer));
        match pages.clone().call(request).await {
            Ok(response) => response.map(Either::Right),
            Err(never) => match never {},
        }
    }
}

/// Returns whether clients use TLS: the listener's own, or that of the proxy in front of it.
fn is_https_only(listener: Listener, api: &Api) -> bool {
    let public = match listener {
        Listener::Store => Some(&api.addresses.base_url),
        Listener::Messages => Some(&api.addresses.messages_base_url),
        Listener::Ops => None,
    };
    let is_behind_proxy = !api.trusted_proxies.is_empty();
    api.addresses.scheme == Scheme::Https || (is_behind_proxy && public.is_some_and(BaseUrl::is_https))
}

impl server::Service for ListenerService {
    type Body = Sent;

    fn answer(&self, request: Request<TimedBody>, peer: IpAddr) -> impl Future<Output = Option<Response<Sent>>> + Send {
        Self::answer(self, request, peer)
    }

    fn connections(&self) -> &Connections {
        self.api.traffic.connections(self.listener)
    }

    fn reject(&self, why: Rejection) -> Vec<u8> {
        let error = match why {
            Rejection::ConnectionLimit => ApiError::unavailable("all connections are taken"),
            Rejection::HeadTimeout(limit) => {
                let seconds = limit.as_secs_f32();
                let message = format!("The head of the request did not arrive within {seconds} seconds.");
                ApiError::new(Code::RequestTimeout, message)
            }
            // Not a redirect: it would work despite having sent the key in plain text.
            Rejection::TlsRequired => ApiError::new(Code::InvalidValue, "This port requires TLS: use https://."),
        };
        let id = new_request_id();
        if let Some(cause) = error.cause() {
            self.log_cause(error.code().status(), cause, &id);
        }
        error.last_response(id)
    }
}

/// Attaches the path template of a page to its response, for the metrics.
async fn name_route(request: Request<Body>, next: Next) -> axum::response::Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    if let Some(path) = path {
        response.extensions_mut().insert(path);
    }
    response
}
