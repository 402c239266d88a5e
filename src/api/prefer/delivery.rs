//! Responses to calls, and how they are sent: those to simulated requests late, cut, slowed or not at all.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderName, HeaderValue, Response};
use bounded_http::NoResponse;
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http_body_util::{BodyExt, Collected, Either};
use tokio::time::{Instant, sleep};

use crate::api::error::ApiError;
use crate::api::recorder::record::{LOST_BY_CLIENT, RecordedRequest};
use crate::api::response::{self, Sent};

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Pieces of a paced body per second.
const PIECES: u16 = 10;

/// Maximum duration of a paced body. Then the rest is sent at once.
const LONGEST: Duration = Duration::from_secs(30);

/// Time for the first half of a body to leave before the connection is closed.
const BEFORE_CLOSING: Duration = Duration::from_millis(50);

/// The response to a call.
#[derive(Debug)]
pub struct Called {
    pub response: response::Response,
    /// `None` unless the request got a simulation.
    pub delivery: Option<Box<Delivery>>,
}

impl Called {
    /// A simulated response, which says so.
    pub fn simulated(mut response: response::Response, delivery: Delivery) -> Self {
        let applied = HeaderValue::try_from(&delivery.applied).expect("values that apply are visible ASCII characters");
        response.headers_mut().insert(PREFERENCE_APPLIED, applied);
        Self { response, delivery: Some(Box::new(delivery)) }
    }
}

impl From<response::Response> for Called {
    fn from(response: response::Response) -> Self {
        Self { response, delivery: None }
    }
}

impl From<ApiError> for Called {
    fn from(error: ApiError) -> Self {
        error.answer().into()
    }
}

/// The differences between a simulated response and a real one.
#[derive(Debug, Default)]
pub struct Delivery {
    /// The value of `Preference-Applied`.
    pub applied: String,
    /// The status of the response, also if it is dropped. `None` for a dropped request.
    pub status: Option<u16>,
    pub is_replayed: bool,
    /// True if the response plays that of a proxy, which does not have the headers of the service.
    pub is_of_proxy: bool,
    pub delay: Option<Duration>,
    /// The end of the connection. `None` if the client gets a response.
    pub dropped: Option<NoResponse>,
    /// True if the body ends after half of it.
    pub is_cut: bool,
    /// Bytes of the body per second.
    pub pace: Option<u16>,
}

impl Delivery {
    /// Waits for the delay to pass.
    pub async fn wait(&self) {
        if let Some(delay) = self.delay {
            sleep(delay).await;
        }
    }

    /// Returns the response as it is sent, or how the connection ends without one. `recorded` is the record of the request,
    /// if it is kept.
    pub async fn send(
        self,
        response: Response<Sent>,
        recorded: Option<Arc<RecordedRequest>>,
    ) -> Result<Response<Sent>, NoResponse> {
        if let Some(dropped) = self.dropped {
            return Err(dropped);
        }
        if !self.is_cut && self.pace.is_none() {
            return Ok(response);
        }
        let (mut head, body) = response.into_parts();
        let body = body.collect().await.map_or_else(|_| Bytes::new(), Collected::to_bytes);
        head.headers.insert(CONTENT_LENGTH, body.len().into());
        Ok(Response::from_parts(head, Either::Right(Body::from_stream(self.pieces(body, recorded)))))
    }

    /// The pieces of a body. An error closes the connection.
    fn pieces(self, mut body: Bytes, recorded: Option<Arc<RecordedRequest>>) -> impl Stream<Item = io::Result<Bytes>> {
        if self.is_cut {
            body.truncate(body.len() / 2);
        }
        let (is_cut, pace, began) = (self.is_cut, self.pace, Instant::now());
        let unsent = Unsent(recorded.filter(|_| !body.is_empty()));
        stream::unfold(Some((body, unsent)), move |state| async move {
            let (mut rest, mut unsent) = state?;
            if rest.is_empty() {
                sleep(BEFORE_CLOSING).await;
                return is_cut.then(|| (Err(io::ErrorKind::UnexpectedEof.into()), None));
            }
            let piece = match pace {
                Some(pace) if began.elapsed() < LONGEST => next_piece(&mut rest, pace).await,
                _ => std::mem::take(&mut rest),
            };
            if rest.is_empty() {
                // The end of the stream may not be polled.
                unsent.0 = None;
            }
            Some((Ok(piece), Some((rest, unsent))))
        })
    }
}

/// The record of a request whose response is being sent. Dropped before the end, its client closed the connection.
struct Unsent(Option<Arc<RecordedRequest>>);

impl Drop for Unsent {
    fn drop(&mut self) {
        if let Some(recorded) = &self.0 {
            _ = recorded.loss.set(LOST_BY_CLIENT);
        }
    }
}

/// Takes the next piece from a body once it is due.
async fn next_piece(rest: &mut Bytes, pace: u16) -> Bytes {
    let size = (pace / PIECES).max(1);
    sleep(Duration::from_secs(size.into()) / u32::from(pace)).await;
    rest.split_to(rest.len().min(size.into()))
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rest_of_a_paced_body_follows_after_thirty_seconds() {
        let began = Instant::now();
        let slow = Delivery { pace: Some(1), ..Delivery::default() };
        let pieces: Vec<_> = slow.pieces(Bytes::from_static(&[b'x'; 100]), None).try_collect().await.unwrap();
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [&[1; 30][..], &[70]].concat());
        assert_eq!(began.elapsed().as_secs(), 30);
    }
}
