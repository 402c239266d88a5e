//! Records requests for their accounts.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Response};

use super::telemetry::RequestTelemetry;
use crate::api::caller::Caller;
use crate::api::input::idempotency::IDEMPOTENT_REPLAYED;
use crate::api::operations::{Listener, Operation};
use crate::api::prefer::delivery::Delivery;
use crate::api::recorder::body::{CopiedBody, ReadBody};
use crate::api::recorder::record::{
    Exchange, LISTED, LOST_BY_CLIENT, RecordedError, RecordedRequest, RedactedText, SHOWN,
};
use crate::api::recorder::shown;
use crate::api::response::{self, X_REQUEST_ID, content};
use crate::api::simulation::NO_RESPONSE;
use crate::api::state::Api;
use crate::domain::api_key::KeyOwner;

impl RecordedRequest {
    #[inline(never)]
    fn begin(
        api: &Api,
        target: (Listener, Option<Operation>),
        head: &Parts,
        read: ReadBody<'_>,
        owner: KeyOwner,
        response: Option<&response::Response>,
    ) -> Box<Self> {
        let answer = response.map(|response| content(response.body())).unwrap_or_default();
        let line = format!("{} {}", head.method, shown::target(&head.uri));
        let exchange = api.account_requests.keeps_all.then(|| {
            let answer = if head.method == Method::HEAD { &[][..] } else { &answer };
            let text = |body: &[u8]| (!owner.is_key_inactive).then(|| RedactedText::of(body, SHOWN));
            let body = text(shown::body(read, target.1).as_bytes());
            Exchange {
                request_head: RedactedText::of_head(&format!("{line} {:?}", head.version), &head.headers),
                response_head: RedactedText::default(),
                request_body: body.map(|body| RedactedText { is_cut: body.is_cut || !read.is_complete, ..body }),
                response_body: text(answer),
            }
        });
        Box::new(Self {
            id: 0,
            owner,
            at: api.clock.now(),
            took: Duration::ZERO,
            listener: target.0,
            operation: target.1,
            line: RedactedText::of(line.as_bytes(), LISTED),
            status: response.map(|response| response.status().as_u16()),
            loss: if response.is_some() { OnceLock::new() } else { LOST_BY_CLIENT.into() },
            error: response.and_then(|response| RecordedError::of(response.status(), &answer)),
            request_id: RedactedText::default(),
            simulated: None,
            is_replayed: response.is_some_and(|response| response.headers().contains_key(IDEMPOTENT_REPLAYED)),
            exchange,
        })
    }

    /// Records that the response is simulated.
    pub fn simulate(&mut self, delivery: &Delivery) {
        self.simulated = Some(RedactedText::of(delivery.applied.as_bytes(), LISTED));
        (self.status, self.is_replayed) = (delivery.status, delivery.is_replayed);
        if delivery.dropped.is_some() || delivery.is_cut {
            _ = self.loss.set("the connection was closed");
        }
    }

    /// Completes the record with the response's headers, and stores it.
    #[inline(never)]
    pub fn end<B>(mut self, api: &Api, took: Duration, response: &Response<B>) -> Arc<Self> {
        if let Some(exchange) = self.exchange.as_mut().filter(|_| response.status() != NO_RESPONSE) {
            let line = format!("{:?} {}", response.version(), response.status());
            exchange.response_head = RedactedText::of_head(&line, response.headers());
        }
        let id = response.headers().get(X_REQUEST_ID);
        self.store(api, took, id)
    }

    /// Stores the record. `id` is the request's, if the client got it.
    pub fn store(mut self, api: &Api, took: Duration, id: Option<&HeaderValue>) -> Arc<Self> {
        self.took = took;
        self.request_id = RedactedText::of(id.map_or(&[][..], HeaderValue::as_bytes), LISTED);
        api.account_requests.add(self)
    }
}

/// A call in progress. Dropped before [`Self::end`], it is logged and recorded as one whose client closed the connection.
pub struct Unanswered<'r, 'p, 's, 'b, B: HttpBody> {
    pub api: &'r Api,
    pub listener: Listener,
    pub operation: Operation,
    pub head: &'r Parts,
    pub body: &'r mut CopiedBody<'b, B>,
    pub caller: &'r mut Caller<'p>,
    pub telemetry: &'r mut RequestTelemetry<'s>,
    /// The response that is being delayed, if it is a simulated one.
    pub delivery: Option<&'r Delivery>,
}

impl<B: HttpBody> Unanswered<'_, '_, '_, '_, B> {
    /// Begins to record the request, as [`record`] does.
    pub fn record(&self, response: Option<&response::Response>) -> Option<Box<RecordedRequest>> {
        let target = (self.listener, Some(self.operation));
        record(self.api, target, self.head, self.body.read(), self.caller, response)
    }

    pub fn end(self) {
        std::mem::forget(self);
    }
}

impl<B: HttpBody> Drop for Unanswered<'_, '_, '_, '_, B> {
    fn drop(&mut self) {
        let took = self.telemetry.abandon(self.api, self.caller);
        if let Some(mut recorded) = self.record(None) {
            if let Some(delivery) = self.delivery {
                recorded.simulate(delivery);
            }
            recorded.store(self.api, took, Some(&self.caller.peer.request_id));
        }
    }
}

/// Begins to record a request, before the response has all its headers. `response` is `None` if the client closed the
/// connection before it. Returns `None` without a key that was ever valid, or if the request is not kept.
#[inline]
pub fn record(
    api: &Api,
    target: (Listener, Option<Operation>),
    head: &Parts,
    read: ReadBody<'_>,
    caller: &Caller<'_>,
    response: Option<&response::Response>,
) -> Option<Box<RecordedRequest>> {
    let is_kept = response.is_none_or(|response| api.account_requests.keeps(response.status()));
    let owner = is_kept.then(|| caller.key_owner()).flatten()?;
    Some(RecordedRequest::begin(api, target, head, read, owner, response))
}
