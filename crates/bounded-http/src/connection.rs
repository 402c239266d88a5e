//! One connection, from its first byte to its last.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use http::HeaderValue;
use http::header::CONNECTION;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::body::{EndOfResponse, TimedBody};
use super::deadlines::Deadlines;
use super::request_line::HasFragment;
use super::stream::{LINGER_TIMEOUT, Stream, linger, secure, tcp};
use super::tls::Tls;
use super::{Connections, Expired, Limits, NoResponse, Rejection, Service};

/// The parser rejects larger heads with 431.
pub const HEAD_BYTES: usize = 32 * 1024;

/// Maximum size of a connection's buffers for bytes not yet parsed or not yet sent: twice the largest head. Only a body
/// in one piece may exceed it, by its length.
const BUFFER_BYTES: usize = 2 * HEAD_BYTES;

/// How to serve the connections of a listener.
#[derive(Clone)]
pub struct Serving<S> {
    pub service: S,
    pub tls: Option<Tls>,
    pub limits: Limits,
    /// True once open requests should end.
    pub stopped: watch::Receiver<bool>,
}

impl<S: Service> Serving<S> {
    /// Serves a connection until it ends.
    pub async fn serve(self, stream: TcpStream, peer: SocketAddr) {
        let _open = self.service.connections().accept();
        // Responses are written whole, so waiting to fill a packet would only delay them.
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let stream = match &self.tls {
            None => Some(Stream::Left(stream)),
            // Boxed, so that the futures of plain connections have no room for a handshake.
            Some(tls) => Box::pin(self.handshake(stream, tls, peer)).await,
        };
        let Some(stream) = stream else { return };
        let deadlines = Arc::new(Deadlines::new(self.limits));
        let socket = TokioIo::new(Socket { stream, deadlines: Arc::clone(&deadlines) });
        let (service, answering) = (&self.service, &deadlines);
        let answer = service_fn(move |request: http::Request<Incoming>| {
            let time = answering.request_began();
            let mut request = request.map(|body| TimedBody::new(body, time, answering));
            if answering.request_line.take_fragment() {
                request.extensions_mut().insert(HasFragment);
            }
            service.answer(request, peer).map(move |response| {
                // hyper closes the connection after an error.
                let mut response = response.map_err(|end| match end {
                    NoResponse::Close => io::ErrorKind::ConnectionAborted,
                    NoResponse::Reset => io::ErrorKind::ConnectionReset,
                })?;
                if !answering.answered() {
                    // hyper announces the close only if the rest of the body has arrived already.
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                let end = EndOfResponse(Arc::clone(answering));
                Ok::<_, io::Error>(response.map(|body| {
                    // Changes no error: the closure owns `end`, which is therefore dropped with the body.
                    body.map_err(move |error| {
                        let _owned = &end;
                        error
                    })
                }))
            })
        });
        let mut http = http1::Builder::new()
            .header_read_timeout(None)
            // One `send` of head and body together is cheaper than a `writev` of two pieces.
            .writev(false)
            .max_header_size(HEAD_BYTES)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(socket, answer);
        let end = drive(&mut http, &deadlines, self.stopped, service.connections()).await;
        close(http.into_parts().io.into_inner().stream, end, &self.service, self.limits).await;
    }

    /// Returns the stream after the TLS handshake, which may take as long as a head. `None` if it failed or the service stops.
    async fn handshake(&self, stream: TcpStream, tls: &Tls, peer: SocketAddr) -> Option<Stream> {
        let mut stopped = self.stopped.clone();
        let secured = tokio::select! {
            secured = timeout(self.limits.head, secure(stream, tls, peer, &self.service)) => secured,
            _ = stopped.wait_for(|stopped| *stopped) => return None,
        };
        match secured.inspect_err(|_| self.service.connections().expire(Expired::Handshake)).ok()?.ok()? {
            encrypted @ Stream::Right(_) => Some(encrypted),
            rejected @ Stream::Left(_) => {
                linger(rejected).await;
                None
            }
        }
    }
}

/// Why a connection is closed.
enum End {
    /// It ended as HTTP says, the client closed or reset it, or it was not HTTP.
    Http,
    /// The service reset it.
    Reset,
    Expired(Expired),
}

/// Polls a connection until it ends or a deadline expires. Ends it after the current request once `stopped`, at once if it is
/// idle.
async fn drive<S>(
    http: &mut http1::Connection<TokioIo<Socket>, S>,
    deadlines: &Deadlines,
    mut stopped: watch::Receiver<bool>,
    connections: &Connections,
) -> End
where
    S: HttpService<Incoming, Error = io::Error> + Unpin,
    S::ResBody: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let mut timer = std::pin::pin!(sleep_until(deadlines.check().unwrap_or_else(|_| Instant::now())));
    let stop_requested = stopped.clone();
    let mut stop = std::pin::pin!(stopped.wait_for(|stopped| *stopped));
    let (mut awaited, mut stopping) = (false, false);
    poll_fn(|cx| {
        loop {
            // Errors need no other handling. The client sent a reset, or bytes that are not HTTP, and hyper has
            // responded to these bytes. Or the service had no response.
            if let Poll::Ready(ended) = Pin::new(&mut *http).poll(cx) {
                return Poll::Ready(match ended {
                    Err(error) if error.is_user() && is_reset(&error) => End::Reset,
                    Err(error) if error.is_parse() => {
                        connections.reject_malformed();
                        End::Http
                    }
                    Ok(()) | Err(_) => End::Http,
                });
            }
            // Polling the timer and the stop costs several times what checking their state does. Once polled,
            // each wakes this task, so until then neither is polled again.
            if awaited && !timer.is_elapsed() && (stopping || matches!(stop_requested.has_changed(), Ok(false))) {
                return Poll::Pending;
            }
            awaited = true;
            if timer.as_mut().poll(cx).is_ready() {
                match deadlines.check().inspect_err(|expired| connections.expire(*expired)) {
                    Ok(next) => timer.as_mut().reset(next),
                    Err(expired) => return Poll::Ready(End::Expired(expired)),
                }
            } else if !stopping && stop.as_mut().poll(cx).is_ready() {
                if deadlines.is_idle() {
                    return Poll::Ready(End::Expired(Expired::Idle));
                }
                stopping = true;
                Pin::new(&mut *http).graceful_shutdown();
            } else {
                return Poll::Pending;
            }
            awaited = false;
        }
    })
    .await
}

fn is_reset(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::ConnectionReset)
}

/// Closes a connection, and tells the client of an expired deadline if it can read that.
async fn close(mut stream: Stream, end: End, service: &impl Service, limits: Limits) {
    match end {
        End::Expired(Expired::Head) => {
            let response = service.reject(Rejection::HeadTimeout(limits.head));
            if timeout(LINGER_TIMEOUT, stream.write_all(&response)).await.is_err() {
                return;
            }
        }
        // Without a TLS close notification, the client would take the connection for truncated.
        End::Expired(Expired::Idle) => {
            let _ = timeout(LINGER_TIMEOUT, stream.shutdown()).await;
            return;
        }
        // A client that does not read would not read a response either. The system would hold its unread bytes for minutes.
        End::Reset | End::Expired(_) => {
            let _ = tcp(&stream).set_zero_linger();
            return;
        }
        End::Http => {}
    }
    linger(stream).await;
}

/// The socket, which reports reads and writes to the deadlines.
struct Socket {
    stream: Stream,
    deadlines: Arc<Deadlines>,
}

impl AsyncRead for Socket {
    #[inline]
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Poll::Ready(Ok(())) = read {
            let received = &buffer.filled()[before..];
            if self.deadlines.received(received.len())? {
                self.deadlines.request_line.begin();
            }
            self.deadlines.request_line.received(received);
        }
        read
    }
}

impl AsyncWrite for Socket {
    #[inline]
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        match written {
            Poll::Pending => self.deadlines.write_blocked(),
            Poll::Ready(Ok(bytes)) => self.deadlines.wrote(bytes),
            Poll::Ready(Err(_)) => {}
        }
        written
    }

    /// hyper flushes when its own buffer is empty.
    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        match flushed {
            Poll::Ready(_) => self.deadlines.flushed(),
            // Only with TLS, which accepts bytes before the network does.
            Poll::Pending => self.deadlines.flush_blocked(),
        }
        flushed
    }

    #[inline]
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
