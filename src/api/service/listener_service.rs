//! The service of a listener: finds who responds to a request, and accounts for the response.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::MatchedPath;
use axum::http::header::{CONNECTION, STRICT_TRANSPORT_SECURITY};
use axum::http::request::Parts;
use axum::http::uri::Scheme;
use axum::http::{HeaderMap, HeaderValue, Request, Response};
use axum::middleware::{Next, from_fn};
use bounded_http::framing::{self, Ambiguous};
use bounded_http::{Connections, NoResponse, Rejection, TimedBody};
use futures_util::FutureExt;
use http_body_util::Either;
use tokio::time::timeout;
use tower::Service;

use super::cors::{Cors, is_preflight};
use super::record::{Unanswered, record};
use super::telemetry::{RequestTelemetry, log_cause};
use crate::api::caller::Caller;
use crate::api::client::Peer;
use crate::api::dispatch;
use crate::api::error::{ApiError, Cause, Code};
use crate::api::input::query_and_body::RequestBody;
use crate::api::operations::Operation::{self, GetPet};
use crate::api::operations::{Listener, Target};
use crate::api::prefer::delivery::{Called, Delivery};
use crate::api::recorder::body::{CopiedBody, ReadBody};
use crate::api::response::{self, Sent, X_REQUEST_ID, new_request_id, request_id};
use crate::api::state::Api;
use crate::api::unmatched::answer_other_method;

/// Limit of finding the account of a request that no operation responds to, which the account's list of requests shows.
const RECOGNITION: Duration = Duration::from_millis(100);

const A_YEAR: HeaderValue = HeaderValue::from_static("max-age=31536000");

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
}

/// The part of the service that responds to a request.
enum Route {
    /// Boxed, because a response is large, and most routes have none.
    Answered(Box<response::Response>),
    Operation(Operation),
    Pages(Router),
}

impl ListenerService {
    /// The operations of `listener`, and `pages` at paths that no operation has.
    pub fn new(listener: Listener, api: &Arc<Api>, pages: Option<Router>) -> Self {
        let addresses = &api.addresses;
        let is_public_https = listener != Listener::Ops && addresses.base_url_of(Some(listener)).is_https();
        let is_behind_proxy = !api.trusted_proxies.is_empty();
        Self {
            listener,
            api: Arc::clone(api),
            pages: pages.map(|pages| pages.layer(from_fn(name_route))),
            cors: Cors::of(listener, addresses).map(Arc::new),
            // With the listener's own TLS, or that of the proxy in front of it.
            is_https_only: addresses.scheme == Scheme::HTTPS || is_behind_proxy && is_public_https,
        }
    }

    /// Responds to a request from `peer`.
    ///
    /// Not an `async fn`, because its future would have room for the request twice. hyper moves this future for every
    /// request, so it should be small.
    pub fn answer<B: RequestBody + 'static>(
        &self,
        request: Request<B>,
        peer: IpAddr,
    ) -> impl Future<Output = Result<Response<Sent>, NoResponse>> + Send {
        let (mut head, mut body) = request.into_parts();
        async move {
            // Not before the block, whose future would be larger by the result.
            let framed = framing::check(&mut head, &body);
            let api = &self.api;
            let target = Target::of(self.listener, &head.method, head.uri.path());
            let mut telemetry = RequestTelemetry::begin(api, self.listener, target, &head, peer);
            let origin = self.cors.as_ref().and_then(|cors| cors.allowed_origin(&head.headers));
            let peer = Peer { address: peer, request_id: request_id(&head.headers) };
            let mut caller = Caller::unknown(&peer);
            let mut recorded = None;
            let mut response = match self.route(&head, framed, target) {
                Route::Answered(response) => {
                    if self.listener != Listener::Ops {
                        // A database that hangs must not delay the response.
                        let recognized = Box::pin(timeout(RECOGNITION, caller.authenticate(api, &head.headers)));
                        _ = AssertUnwindSafe(recognized).catch_unwind().await;
                        let read = ReadBody { bytes: &[], is_complete: body.is_end_stream() };
                        let target = (self.listener, target.operation());
                        recorded = record(api, target, &head, read, &caller, Some(&response));
                    }
                    (*response).map(Either::Left)
                }
                Route::Operation(operation) => {
                    let unanswered = Unanswered {
                        api,
                        listener: self.listener,
                        operation,
                        head: &head,
                        body: &mut CopiedBody::new(&mut body, api.account_requests.keeps_all),
                        caller: &mut caller,
                        telemetry: &mut telemetry,
                        delivery: None,
                    };
                    let call = dispatch::call(operation, api, &head, unanswered.body, unanswered.caller);
                    let call = unanswered.telemetry.within(call);
                    let called = AssertUnwindSafe(call).catch_unwind().await;
                    let Called { response, delivery } = called.unwrap_or_else(|panic| of_panic(&*panic).into());
                    if let Some(delivery) = delivery {
                        // Boxed, because it is rarely needed.
                        return Box::pin(self.deliver(delivery, response, unanswered, origin)).await;
                    }
                    recorded = unanswered.record(Some(&response));
                    unanswered.end();
                    response.map(Either::Left)
                }
                Route::Pages(mut pages) => {
                    let peer = peer.clone();
                    let page = async move {
                        let mut request = Request::from_parts(head, body).map(Body::new);
                        request.extensions_mut().insert(peer);
                        pages.call(request).await
                    };
                    // Boxed, because it is large and rarely needed.
                    let page = Box::pin(telemetry.within(page));
                    match AssertUnwindSafe(page).catch_unwind().await {
                        Ok(Ok(page)) => page.map(Either::Right),
                        Err(panic) => of_panic(&*panic).answer().map(Either::Left),
                    }
                }
            };
            let took = telemetry.end(api, &caller, &mut response);
            self.write_headers(target, origin, response.headers_mut());
            response.headers_mut().insert(X_REQUEST_ID, peer.request_id);
            if let Some(recorded) = recorded {
                recorded.end(api, took, &response);
            }
            Ok(response)
        }
    }

    /// Sends a simulated response.
    async fn deliver<B: RequestBody>(
        &self,
        delivery: Box<Delivery>,
        response: response::Response,
        mut unanswered: Unanswered<'_, '_, '_, '_, B>,
        origin: Option<HeaderValue>,
    ) -> Result<Response<Sent>, NoResponse> {
        unanswered.delivery = Some(&delivery);
        unanswered.telemetry.is_simulated = true;
        delivery.wait().await;
        let (api, operation, caller) = (unanswered.api, unanswered.operation, &*unanswered.caller);
        let recorded = unanswered.record(Some(&response));
        let mut response = response.map(Either::Left);
        let took = unanswered.telemetry.end(api, caller, &mut response);
        if delivery.is_of_proxy {
            self.write_cors(origin, response.headers_mut());
        } else {
            self.write_headers(Target::Operation(operation), origin, response.headers_mut());
            response.headers_mut().insert(X_REQUEST_ID, caller.peer.request_id.clone());
        }
        unanswered.end();
        let recorded = recorded.map(|mut recorded| {
            recorded.simulate(&delivery);
            recorded.end(api, took, &response)
        });
        delivery.send(response, recorded).await
    }

    /// Decides who responds to a request.
    fn route(&self, head: &Parts, framed: Result<(), Ambiguous>, target: Target) -> Route {
        let path = head.uri.path();
        let response = if let Err(ambiguous) = framed {
            ApiError::new(Code::InvalidValue, ambiguous.to_string()).with_header("connection", "close").answer()
        } else {
            match (target, &self.cors, &self.pages) {
                (_, Some(cors), _) if is_preflight(head) => cors.answer_preflight(),
                (Target::Operation(operation), ..) => return Route::Operation(operation),
                (Target::OtherMethod(operation), ..) => answer_other_method(operation, &self.api),
                (Target::Unknown, _, Some(pages)) if !path.starts_with("/v1/") => return Route::Pages(pages.clone()),
                (Target::Unknown, ..) => self.api.path_not_found(self.listener, &head.headers, path).answer(),
            }
        };
        Route::Answered(Box::new(response))
    }

    /// Writes the headers that do not depend on the handler.
    fn write_headers(&self, target: Target, origin: Option<HeaderValue>, headers: &mut HeaderMap) {
        self.write_cors(origin, headers);
        if target == Target::Operation(GetPet) {
            self.api.deprecation.announce(headers);
        }
        // Clients look for another process before this one closes their connections.
        if self.api.draining.load(Ordering::Relaxed) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.is_https_only {
            headers.insert(STRICT_TRANSPORT_SECURITY, A_YEAR);
        }
    }

    fn write_cors(&self, origin: Option<HeaderValue>, headers: &mut HeaderMap) {
        if self.cors.is_some() {
            Cors::write_headers(origin, headers);
        }
    }
}

fn of_panic(panic: &(dyn Any + Send)) -> ApiError {
    ApiError::internal(Cause::of_panic(panic).0)
}

impl bounded_http::Service for ListenerService {
    type Body = Sent;

    fn answer(
        &self,
        request: Request<TimedBody>,
        peer: SocketAddr,
    ) -> impl Future<Output = Result<Response<Sent>, NoResponse>> + Send {
        Self::answer(self, request, peer.ip())
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
            other => return other.to_response(),
        };
        let id = new_request_id();
        if let Some(cause) = &error.cause {
            log_cause(&self.api, error.code.status(), cause, &id);
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
