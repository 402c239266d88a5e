//! Records requests for their accounts.

use std::time::Duration;

use axum::http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};

use super::api_key_cache::KeyHolder;
use super::auth::Caller;
use super::idempotency::IDEMPOTENT_REPLAYED;
use super::operations::Operation;
use super::prefer::PREFERENCE_APPLIED;
use super::recorded_request::{Exchange, LISTED, RecordedError, RecordedRequest, SHOWN, Sender, Text};
use super::request_id::X_REQUEST_ID;
use super::response;
use super::state::Api;
use crate::config::Listener;

impl RecordedRequest {
    /// Begins to record a request, before the response has all its headers. `None` without a key that was ever valid. `body`
    /// is what the operation has read, on staging.
    #[inline(never)]
    pub fn begin(
        api: &Api,
        target: (Listener, Option<Operation>),
        head: &Parts,
        body: Option<&[u8]>,
        caller: &Caller,
        response: &response::Response,
    ) -> Option<Box<Self>> {
        let sender = Sender::of(caller)?;
        let answer = content(response.body());
        let line = format!("{} {}", head.method, head.uri.path_and_query().map_or("/", |target| target.as_str()));
        let exchange = api.account_requests.keeps_all.then(|| {
            let answer = if head.method == Method::HEAD { &[][..] } else { &answer };
            let read = body.unwrap_or_default();
            let mut bodies = [read, answer].map(|body| Text::of(body, SHOWN));
            bodies[0].is_cut |= is_longer(&head.headers, read.len());
            Exchange {
                request_head: Text::of_head(&format!("{line} {:?}", head.version), &head.headers),
                response_head: Text::default(),
                bodies: (!sender.is_key_ended).then_some(bodies),
            }
        });
        Some(Box::new(Self {
            id: 0,
            sender,
            at: api.clock.now(),
            took: Duration::ZERO,
            listener: target.0,
            operation: target.1,
            line: Text::of(line.as_bytes(), LISTED),
            status: (!caller.simulated.is_some_and(|simulated| simulated.is_dropped))
                .then(|| response.status().as_u16()),
            error: RecordedError::of(response.status(), &answer),
            request_id: Text::default(),
            simulated: response.headers().get(PREFERENCE_APPLIED).map(|applied| Text::of(applied.as_bytes(), LISTED)),
            is_replayed: response.headers().contains_key(IDEMPOTENT_REPLAYED),
            exchange,
        }))
    }

    /// Completes the record with the response's headers, and stores it.
    #[inline(never)]
    pub fn end<B>(mut self, api: &Api, took: Duration, response: &Response<B>) {
        self.took = took;
        let request_id = response.headers().get(X_REQUEST_ID).map_or(&[][..], HeaderValue::as_bytes);
        self.request_id = Text::of(request_id, LISTED);
        if let Some(exchange) = self.exchange.as_mut().filter(|_| self.status.is_some()) {
            let line = format!("{:?} {}", response.version(), response.status());
            exchange.response_head = Text::of_head(&line, response.headers());
        }
        api.account_requests.add(self);
    }
}

/// Returns whether a request has more of its body than was read. An error may be sent before.
fn is_longer(headers: &HeaderMap, read: usize) -> bool {
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    declared.map_or(read == 0 && headers.contains_key(TRANSFER_ENCODING), |length| length > read)
}

impl Sender {
    fn of(caller: &Caller) -> Option<Self> {
        if let Some(KeyHolder { account, key }) = caller.ended_key {
            return Some(Self { account, key, is_key_ended: true });
        }
        Some(Self { account: caller.account?, key: caller.key?, is_key_ended: false })
    }
}

/// The content of a complete body, which needs no waiting.
fn content(body: &Full<Bytes>) -> Bytes {
    let frame = body.clone().frame().now_or_never().flatten();
    frame.and_then(|frame| frame.ok()?.into_data().ok()).unwrap_or_default()
}
