//! The body of a request, which must arrive in time.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};

use super::deadlines::Deadlines;

/// The error of a body that did not arrive within [`Limits::request`](super::Limits::request).
#[derive(Debug, thiserror::Error)]
#[error("The request did not arrive in time.")]
pub struct BodyTimeout;

/// The error of a body that takes more bytes than [`Limits::body`](super::Limits::body).
#[derive(Debug, thiserror::Error)]
#[error("The body of the request is too large.")]
pub struct BodyTooLarge;

/// A request body with a deadline. The timer is created only when there is something to wait for.
pub struct TimedBody {
    body: Incoming,
    time: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// Notified of the end of the body. `None` if the request has no body, or once trailers have arrived.
    deadlines: Option<Arc<Deadlines>>,
}

impl TimedBody {
    #[inline]
    pub(crate) fn new(body: Incoming, time: Duration, deadlines: &Arc<Deadlines>) -> Self {
        let deadlines = (!body.is_end_stream()).then(|| Arc::clone(deadlines));
        deadlines.iter().for_each(|deadlines| deadlines.set_unread(true));
        Self { body, time, timer: None, deadlines }
    }
}

/// Part of the body of a response. hyper drops it once it has all of the body, or needs none of it.
pub struct EndOfResponse(pub Arc<Deadlines>);

impl Drop for EndOfResponse {
    #[inline]
    fn drop(&mut self) {
        self.0.completed();
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    #[inline]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            match &frame {
                None => self.deadlines.iter().for_each(|deadlines| deadlines.set_unread(false)),
                // hyper reads a trailer line up to its CR and accepts bare line feeds in it. The section may therefore
                // contain bytes that a proxy takes for the next request. The body counts as unread, which closes the
                // connection.
                Some(Ok(frame)) if frame.is_trailers() => self.deadlines = None,
                Some(Err(_)) if self.deadlines.as_ref().is_some_and(|deadlines| deadlines.is_body_too_large()) => {
                    return Poll::Ready(Some(Err(BodyTooLarge.into())));
                }
                Some(_) => {}
            }
            return Poll::Ready(frame.map(|frame| Ok(frame?)));
        }
        let time = self.time;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(time)));
        timer.as_mut().poll(cx).map(|()| Some(Err(BodyTimeout.into())))
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
