//! Everything around the handler of a request: its id, dispatch, CORS, panics, metrics, traces and the log.

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
use super::operations::Operation::{self, GetPet};
use super::operations::Target;
use super::request_context::RequestContext;
use super::request_id::{X_REQUEST_ID, request_id};
use super::state::Api;
use crate::config::Listener;
use crate::server::Connections;
use crate::telemetry::request_log::RequestLogEntry;
use crate::telemetry::traces::{Recording, Tracer};

const A_YEAR: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// The body of a response: complete for operations, any body for pages.
pub type Sent = Either<Full<Bytes>, Body>;

/// Serves the operations and pages of one listener.
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

    /// Sets whether responses tell browsers to use TLS only (RFC 6797).
    pub fn https_only(self, https_only: bool) -> Self {
        Self { https_only, ..self }
    }

    /// Sets whether every request is logged. At level debug it always is.
    pub fn logging(self, logs_requests: bool) -> Self {
        Self { logs_requests, ..self }
    }

    /// Records a span for every request. Not on the operations listener, which only the operator's tools use.
    pub fn tracing(self, tracer: &Tracer) -> Self {
        let tracer = (self.listener != Listener::Ops).then(|| tracer.clone());
        Self { tracer, ..self }
    }

    /// The counters of the listener's connections.
    pub fn connections(&self) -> &Connections {
        self.api.traffic.connections(self.listener)
    }

    /// Responds to a request from `peer`.
    ///
    /// Not an `async fn`, because its future would have room for the request twice. hyper moves this future for every
    /// request, so it should be small.
    pub fn answer<B>(&self, request: Request<B>, peer: IpAddr) -> impl Future<Output = Response<Sent>> + Send
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
    {
        let (mut head, mut body) = request.into_parts();
        async move {
            let api = &self.api;
            let target = Target::of(self.listener, &head.method, head.uri.path());
            let in_progress = api.traffic.begin(&head.method);
            let id = request_id(&head.headers);
            let is_logged = self.logs_requests || tracing::enabled!(tracing::Level::DEBUG);
            let log_entry = is_logged.then(|| RequestLogEntry::of(&head));
            let needs_context = is_logged || api.rate_limits.is_some();
            let context = needs_context.then(|| RequestContext::attach(&mut head.extensions));
            let tracer = self.tracer.as_ref().filter(|_| !target.at_path().is_some_and(Operation::is_health_check));
            let span = tracer.and_then(|tracer| tracer.begin(&head));
            let answered = if let Err(unclear) = framing::check(&head, &body) {
                let mut response = unclear.answer();
                // The bytes that follow may be another request to a proxy, but part of this one to us.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                Ok(response.map(Either::Left))
            } else if let Target::Operation(operation) = target
                && self.cors_for(&head).is_none()
            {
                let answering = operation.answer(api, &mut head, &mut body);
                AssertUnwindSafe(answering).catch_unwind().await.map(|response| response.map(Either::Left))
            } else {
                // Boxed, because it is large and rarely needed.
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
            let took = in_progress.end(route, response.status());
            let trace = span.as_ref().and_then(Recording::trace);
            if let Some(span) = span {
                span.end(api.traffic.template(route), response.status(), &id);
            }
            if let Some(mut entry) = log_entry {
                if let Some(trace) = trace {
                    entry.is_in(trace);
                }
                let account = context.as_ref().and_then(RequestContext::account);
                entry.write(&id, account, route.template(), response.status(), took);
            }
            self.finish(&mut response, id, target, context.as_ref());
            response
        }
    }

    /// Logs the cause of an error and adds the headers that every response has.
    fn finish(&self, response: &mut Response<Sent>, id: HeaderValue, target: Target, context: Option<&RequestContext>) {
        if let Some(Cause(cause)) = response.extensions_mut().remove() {
            let status = response.status().as_u16();
            let request_id = id.to_str().unwrap_or_default();
            match response.status() {
                // Sampled, because overload and outages reject many requests at once.
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
            // A cache must not return the response for one origin to another origin.
            response.headers_mut().entry(VARY).or_insert(HeaderValue::from_static("origin"));
        }
        if self.https_only {
            response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, A_YEAR);
        }
        response.headers_mut().insert(X_REQUEST_ID, id);
    }

    /// The CORS layer, if the listener has one and a page sent the request.
    fn cors_for(&self, head: &Parts) -> Option<&CorsLayer> {
        self.cors.as_ref().filter(|_| is_from_a_page(&head.method, &head.headers))
    }

    /// Responds to rare requests, with boxed bodies: from pages of other origins, with wrong methods, and for pages.
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

/// Attaches the path template of a page to its response, for the metrics.
async fn name_route(request: Request<Body>, next: Next) -> axum::response::Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    if let Some(path) = path {
        response.extensions_mut().insert(path);
    }
    response
}

/// Returns whether a page sent the request. Excludes `OPTIONS` requests that are not preflights, because the CORS layer
/// would respond to them as if they were.
fn is_from_a_page(method: &Method, headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) && (method != Method::OPTIONS || headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD))
}
