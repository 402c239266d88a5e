//! Records requests for their accounts.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};

use super::telemetry::RequestTelemetry;
use crate::api::admission::keys::KeyHolder;
use crate::api::caller::Caller;
use crate::api::input::idempotency::IDEMPOTENT_REPLAYED;
use crate::api::listener::Listener;
use crate::api::operations::Operation;
use crate::api::prefer::delivery::Simulated;
use crate::api::recorder::record::{
    Exchange, KeyOwner, LISTED, Loss, RecordedError, RecordedRequest, RedactedText, SHOWN,
};
use crate::api::recorder::shown;
use crate::api::request_id::X_REQUEST_ID;
use crate::api::response;
use crate::api::state::Api;

impl RecordedRequest {
    /// Begins to record a request, before the response has all its headers. `None` without a key that was ever valid.
    /// `response` is `None` if the client closed the connection before it.
    #[inline(never)]
    pub fn begin(
        api: &Api,
        target: (Listener, Option<Operation>),
        head: &Parts,
        caller: &Caller<'_>,
        response: Option<&response::Response>,
    ) -> Option<Box<Self>> {
        let owner = KeyOwner::of(caller)?;
        let answer = response.map(|response| content(response.body())).unwrap_or_default();
        let line = format!("{} {}", head.method, shown::target(&head.uri));
        let exchange = api.account_requests.keeps_all.then(|| {
            let answer = if head.method == Method::HEAD { &[][..] } else { &answer };
            let read = caller.body.as_deref();
            let shown = shown::body(read.unwrap_or_default(), target.1);
            let mut bodies = [shown.as_bytes(), answer].map(|body| RedactedText::of(body, SHOWN));
            bodies[0].is_cut |= is_longer(&head.headers, read.map(<[u8]>::len));
            Exchange {
                request_head: RedactedText::of_head(&format!("{line} {:?}", head.version), &head.headers),
                response_head: RedactedText::default(),
                bodies: (!owner.is_key_inactive).then_some(bodies),
            }
        });
        let simulated = caller.simulated.as_ref();
        let is_lost = simulated.is_some_and(|simulated| simulated.is_dropped || simulated.is_cut);
        let loss = if response.is_none() { Some(Loss::ByClient) } else { is_lost.then_some(Loss::BySimulation) };
        Some(Box::new(Self {
            id: 0,
            owner,
            at: api.clock.now(),
            took: Duration::ZERO,
            listener: target.0,
            operation: target.1,
            line: RedactedText::of(line.as_bytes(), LISTED),
            status: response.filter(|_| !simulated.is_some_and(|it| it.is_dropped)).map(|it| it.status().as_u16()),
            loss: loss.map_or_else(OnceLock::new, OnceLock::from),
            error: response.and_then(|response| RecordedError::of(response.status(), &answer)),
            request_id: RedactedText::default(),
            simulated: simulated.map(|simulated| RedactedText::of(simulated.applied.as_bytes(), LISTED)),
            is_replayed: response.is_some_and(|response| response.headers().contains_key(IDEMPOTENT_REPLAYED)),
            exchange,
        }))
    }

    /// Completes the record with the response's headers, and stores it. A simulation keeps it until the body is sent.
    #[inline(never)]
    pub fn end<B>(mut self, api: &Api, took: Duration, response: &Response<B>, simulated: Option<&mut Simulated>) {
        if let Some(exchange) = self.exchange.as_mut().filter(|_| self.status.is_some()) {
            let line = format!("{:?} {}", response.version(), response.status());
            exchange.response_head = RedactedText::of_head(&line, response.headers());
        }
        let id = response.headers().get(X_REQUEST_ID);
        let recorded = self.store(api, took, id);
        if let Some(simulated) = simulated {
            simulated.recorded = Some(recorded);
        }
    }

    /// Stores the record. `id` is the request's, if the client got it.
    pub fn store(mut self, api: &Api, took: Duration, id: Option<&HeaderValue>) -> Arc<Self> {
        self.took = took;
        self.request_id = RedactedText::of(id.map_or(&[][..], HeaderValue::as_bytes), LISTED);
        api.account_requests.add(self)
    }
}

/// A call in progress. Dropped before [`Self::end`], it is logged and recorded as one whose client closed the connection.
pub struct Unanswered<'r, 'a, 's> {
    pub api: &'r Api,
    pub listener: Listener,
    pub operation: Operation,
    pub head: &'r Parts,
    pub caller: &'r mut Caller<'a>,
    pub telemetry: &'r mut RequestTelemetry<'s>,
}

impl Unanswered<'_, '_, '_> {
    pub fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unanswered<'_, '_, '_> {
    fn drop(&mut self) {
        self.telemetry.abandon(self.api, self.operation, self.caller);
        let target = (self.listener, Some(self.operation));
        if let Some(recorded) = RecordedRequest::begin(self.api, target, self.head, self.caller, None) {
            recorded.store(self.api, self.telemetry.elapsed(), Some(&self.caller.peer.request_id));
        }
    }
}

/// Returns whether a request has more of its body than was read. An error may be sent before.
fn is_longer(headers: &HeaderMap, read: Option<usize>) -> bool {
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let is_unread = || read.is_none() && headers.contains_key(TRANSFER_ENCODING);
    declared.map_or_else(is_unread, |length| length > read.unwrap_or_default())
}

impl KeyOwner {
    fn of(caller: &Caller<'_>) -> Option<Self> {
        if let Some(KeyHolder { account, key }) = caller.inactive_key {
            return Some(Self { account, key, is_key_inactive: true });
        }
        Some(Self { account: caller.account?, key: caller.key?, is_key_inactive: false })
    }
}

/// The content of a complete body, which needs no waiting.
fn content(body: &Full<Bytes>) -> Bytes {
    let frame = body.clone().frame().now_or_never().flatten();
    frame.and_then(|frame| frame.ok()?.into_data().ok()).unwrap_or_default()
}
