//! The way in and out of every request: its id, the last resort against a panic, and the log.

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;

use axum::body::{Body, HttpBody};
use axum::extract::MatchedPath;
use axum::http::header::{ACCESS_CONTROL_REQUEST_METHOD, CONNECTION, ORIGIN, STRICT_TRANSPORT_SECURITY, VARY};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::{BoxError, Router};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{Either, Full};
use tower::{Layer, Service, service_fn};
use tower_http::cors::CorsLayer;

use super::client_address::Peer;
use super::deprecation::Deprecation;
use super::error::{ApiError, Cause};
use super::framing;
use super::operations::Operation::GetPet;
use super::operations::Target;
use super::request_context::RequestContext;
use super::request_id::{X_REQUEST_ID, request_id};
use super::state::Api;
use crate::config::Listener;
use crate::server::Connections;
use crate::telemetry::request_log::RequestLogEntry;
#[cfg(feature = "otlp")]
use crate::telemetry::traces::{Recording, Tracer};

const A_YEAR: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// The body of an answer: there as a whole, or whatever a route of the table gave.
pub type Sent = Either<Full<Bytes>, Body>;

/// The operations and pages of a listener, and what happens around each of their responses.
#[derive(Clone, Debug)]
pub struct ListenerService {
    listener: Listener,
    api: Api,
    /// `None` if the listener has operations only.
    pages: Option<Router>,
    /// `None` if no page of another origin may call the operations.
    cors: Option<CorsLayer>,
    deprecation: Option<Deprecation>,
    https_only: bool,
    logs_requests: bool,
    #[cfg(feature = "otlp")]
    tracer: Option<Tracer>,
}

impl ListenerService {
    /// The operations of `listener`.
    pub fn new(listener: Listener, api: &Api) -> Self {
        Self {
            listener,
            api: api.clone(),
            pages: None,
            cors: None,
            deprecation: GetPet.is_on(listener).then(|| Deprecation::of_get_pet(&api.addresses)),
            https_only: false,
            logs_requests: false,
            #[cfg(feature = "otlp")]
            tracer: None,
        }
    }

    /// Adds pages: paths that no operation has.
    pub fn with_pages(self, pages: Router) -> Self {
        Self { pages: Some(pages.layer(from_fn(name_route))), ..self }
    }

    /// Lets pages of other origins call the operations.
    pub fn with_cors(self, cors: Option<CorsLayer>) -> Self {
        Self { cors, ..self }
    }

    /// The same, telling browsers to come back by TLS only (RFC 6797), where it is so.
    pub fn https_only(self, https_only: bool) -> Self {
        Self { https_only, ..self }
    }

    /// The same with a line in the log for every request. At level debug there is one anyway.
    pub fn logging(self, logs_requests: bool) -> Self {
        Self { logs_requests, ..self }
    }

    /// The same with a span for every request; but what asks at the operations listener are the operator's own tools.
    #[cfg(feature = "otlp")]
    pub fn tracing(self, tracer: &Tracer) -> Self {
        let tracer = (self.listener != Listener::Ops).then(|| tracer.clone());
        Self { tracer, ..self }
    }

    /// What is counted of the listener's connections.
    pub fn connections(&self) -> &Connections {
        self.api.traffic.connections(self.listener)
    }

    /// Answers a request that came from `peer`: always, and with its id.
    ///
    /// No `async fn`, whose future would have room for the request twice. hyper moves this future into its place for
    /// every request: it should be small.
    pub fn answer<B>(&self, request: Request<B>, peer: IpAddr) -> impl Future<Output = Response<Sent>> + Send
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
    {
        let (mut head, mut body) = request.into_parts();
        async move {
            let api = &self.api;
            let target = Target::of(self.listener, &head.method, head.uri.path());
            let under_way = api.traffic.begin(&head.method);
            let id = request_id(&head.headers);
            let is_logged = self.logs_requests || tracing::enabled!(tracing::Level::DEBUG);
            let log_entry = is_logged.then(|| RequestLogEntry::of(&head));
            let needs_context = is_logged || api.rate_limits.is_some();
            let context = needs_context.then(|| RequestContext::attach(&mut head.extensions));
            #[cfg(feature = "otlp")]
            let tracer = self
                .tracer
                .as_ref()
                .filter(|_| !target.at_path().is_some_and(super::operations::Operation::is_health_check));
            #[cfg(feature = "otlp")]
            let span = tracer.and_then(|tracer| tracer.begin(&head));
            let answered = if let Err(unclear) = framing::check(&head, &body) {
                let mut response = unclear.answer();
                // Whoever sends such a request may mean the next one to be read by somebody else.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                Ok(response.map(Either::Left))
            } else if let Target::Operation(operation) = target
                && self.cors_for(&head).is_none()
            {
                let answering = operation.answer(api, &mut head, &mut body);
                AssertUnwindSafe(answering).catch_unwind().await.map(|response| response.map(Either::Left))
            } else {
                // In a box, since it is large and seldom needed.
                let answering = Box::pin(self.answer_rare(target, Request::from_parts(head, body), peer));
                AssertUnwindSafe(answering).catch_unwind().await
            };
            let mut response = answered
                .unwrap_or_else(|panic| ApiError::internal(Cause::of_panic(&*panic).0).answer().map(Either::Left));
            let page = match target {
                Target::Unknown => {
                    response.extensions_mut().remove().map(|path: MatchedPath| api.traffic.page(path.as_str()))
                }
                _ => None,
            };
            let route = match target.at_path() {
                Some(operation) => api.traffic.operation(operation),
                None => page.as_deref().unwrap_or_else(|| api.traffic.unmatched()),
            };
            let took = under_way.end(route, response.status());
            #[cfg(feature = "otlp")]
            let log_entry = log_entry.map(|mut entry| {
                if let Some(trace) = span.as_ref().and_then(Recording::trace) {
                    entry.is_in(trace);
                }
                entry
            });
            #[cfg(feature = "otlp")]
            if let Some(span) = span {
                span.end(api.traffic.template(route), response.status(), &id);
            }
            if let Some(entry) = log_entry {
                let account = context.as_ref().and_then(RequestContext::account);
                entry.write(&id, account, route.template(), response.status(), took);
            }
            self.finish(&mut response, id, target, context.as_ref());
            response
        }
    }

    /// Logs what is to be logged of an answer, and puts on it what every answer has.
    fn finish(&self, response: &mut Response<Sent>, id: HeaderValue, target: Target, context: Option<&RequestContext>) {
        if let Some(Cause(cause)) = response.extensions_mut().remove() {
            let status = response.status().as_u16();
            let request_id = id.to_str().unwrap_or_default();
            match response.status() {
                // Overload and outages come in floods, and drains are no trouble at all.
                StatusCode::SERVICE_UNAVAILABLE if self.api.traffic.refusals.is_first(&cause) => {
                    tracing::warn!(request_id, status, cause, "request refused");
                }
                StatusCode::SERVICE_UNAVAILABLE => {}
                _ => tracing::error!(request_id, status, cause, "request failed"),
            }
        }
        if let (Target::Operation(GetPet), Some(deprecation)) = (target, &self.deprecation) {
            deprecation.announce(response.headers_mut());
        }
        if let (Some(limits), Some(quota)) = (&self.api.rate_limits, context.and_then(RequestContext::quota)) {
            limits.write_headers(quota, response.headers_mut());
        }
        if self.cors.is_some() {
            // A cache must not give the answer for one origin to another, or to none.
            response.headers_mut().entry(VARY).or_insert(HeaderValue::from_static("origin"));
        }
        if self.https_only {
            response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, A_YEAR);
        }
        response.headers_mut().insert(X_REQUEST_ID, id);
    }

    /// The CORS layer, if a page of another origin sent the request and may.
    fn cors_for(&self, head: &Parts) -> Option<&CorsLayer> {
        self.cors.as_ref().filter(|_| is_from_a_page(&head.method, &head.headers))
    }

    /// Answers what is rare enough for boxes: requests from pages of other origins, wrong methods, and pages.
    async fn answer_rare<B>(&self, target: Target, request: Request<B>, peer: IpAddr) -> Response<Sent>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
    {
        let (head, body) = request.into_parts();
        let cors = self.cors_for(&head);
        let request = Request::from_parts(head, Body::new(body));
        let Some(cors) = cors else { return self.answer_target(target, request, peer).await };
        let answer = |request| async {
            let response = self.answer_target(target, request, peer).await;
            Ok::<_, Infallible>(response.map(Body::new))
        };
        match cors.layer(service_fn(answer)).call(request).await {
            Ok(response) => response.map(Either::Right),
            Err(never) => match never {},
        }
    }

    async fn answer_target(&self, target: Target, mut request: Request<Body>, peer: IpAddr) -> Response<Sent> {
        match (target, &self.pages) {
            (Target::Operation(operation), _) => {
                let (mut head, mut body) = request.into_parts();
                operation.answer(&self.api, &mut head, &mut body).await.map(Either::Left)
            }
            (Target::OtherMethod(operation), _) => operation.answer_other_method(&self.api).map(Either::Left),
            (Target::Unknown, None) => ApiError::route_not_found().answer().map(Either::Left),
            (Target::Unknown, Some(pages)) => {
                request.extensions_mut().insert(Peer(peer));
                match pages.clone().call(request).await {
                    Ok(response) => response.map(Either::Right),
                    Err(never) => match never {},
                }
            }
        }
    }
}

/// Has the answer carry the path of its route in the table.
async fn name_route(request: Request<Body>, next: Next) -> axum::response::Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    if let Some(path) = path {
        response.extensions_mut().insert(path);
    }
    response
}

/// Whether a page of some origin sent the request. `OPTIONS` that is no preflight is a method like others, which the
/// CORS layer would answer as if it were one.
fn is_from_a_page(method: &Method, headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) && (method != Method::OPTIONS || headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD))
}
