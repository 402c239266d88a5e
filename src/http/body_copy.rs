//! A copy of the beginning of a request's body, for the console.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::input::RequestBody;

/// Maximum number of bytes copied: one more than is shown, so that a cut is noticed.
const COPIED: usize = super::recorded_request::SHOWN + 1;

/// A request body whose first bytes are copied while the operation reads it.
pub struct CopiedBody<B> {
    pub body: B,
    /// `None` in production, which copies nothing.
    pub copy: Option<Vec<u8>>,
}

impl<B> CopiedBody<B> {
    pub fn new(body: B, is_copied: bool) -> Self {
        Self { body, copy: is_copied.then(Vec::new) }
    }
}

impl<B: RequestBody> HttpBody for CopiedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let (Some(copy), Some(Ok(frame))) = (&mut self.copy, &frame)
            && let Some(data) = frame.data_ref()
        {
            let room = COPIED - copy.len();
            copy.extend_from_slice(&data[..data.len().min(room)]);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
