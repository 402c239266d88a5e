//! The body of a request, as far as the recorder needs it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::Frame;

/// A body that an operation reads. On staging, it keeps a copy of what was read.
pub struct CopiedBody<'b, B> {
    body: &'b mut B,
    copy: Option<Vec<u8>>,
    is_complete: bool,
}

/// The part of a body that was read, on staging.
#[derive(Clone, Copy)]
pub struct ReadBody<'r> {
    pub bytes: &'r [u8],
    /// True if there is no more. An error may be sent before the whole body is read.
    pub is_complete: bool,
}

impl<'b, B: HttpBody> CopiedBody<'b, B> {
    pub fn new(body: &'b mut B, is_kept: bool) -> Self {
        Self { body, copy: is_kept.then(Vec::new), is_complete: false }
    }

    pub fn read(&self) -> ReadBody<'_> {
        let is_complete = self.is_complete || self.body.is_end_stream();
        ReadBody { bytes: self.copy.as_deref().unwrap_or_default(), is_complete }
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for CopiedBody<'_, B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut *self.body).poll_frame(cx));
        self.is_complete = frame.is_none();
        if let (Some(copy), Some(Ok(frame))) = (&mut self.copy, &frame) {
            copy.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        Poll::Ready(frame)
    }
}
