//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use http::HeaderValue;
use http::header::CONNECTION;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::Limits;
use super::body::TimedBody;
use super::deadlines::{Deadlines, Phase};
use super::request_line::RequestLine;
use super::stream::{Secured, Stream};
use super::tls::Tls;
use crate::http::{ApiError, Code, Expired, HasFragment, ListenerService};

/// How long to read what a client still sends after its connection's last answer. Closing with unread bytes would
/// reset the connection, and the client might never see the answer.
const LINGER: Duration = Duration::from_secs(2);

/// Heads larger than this are refused by the parser with 431.
const HEAD_BYTES: usize = 32 * 1024;

/// How far a connection's buffers grow for what was read and not yet looked at, and for what waits to be sent: twice the
/// largest head. Only a body that is one piece goes beyond, as far as that is long.
const BUFFER_BYTES: usize = 2 * HEAD_BYTES;

pub struct Connection {
    stream: TcpStream,
    tls: Option<Tls>,
    peer: SocketAddr,
    edge: ListenerService,
    limits: Limits,
    stopped: watch::Receiver<bool>,
}

impl Connection {
    pub fn new(
        stream: TcpStream,
        tls: Option<Tls>,
        peer: SocketAddr,
        edge: ListenerService,
        limits: Limits,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        Self { stream, tls, peer, edge, limits, stopped }
    }

    pub async fn run(mut self) {
        let _open = self.edge.connections().accept();
        // Answers are written whole; waiting to fill a packet would only delay them.
        if self.stream.set_nodelay(true).is_err() {
            return;
        }
        let stream = match &self.tls {
            None => Stream::Plain(self.stream),
            // In a box, so that plain connections don't carry the room for a handshake along.
            Some(tls) => {
                match Box::pin(handshake(self.stream, tls, self.peer, self.limits, &self.edge, &mut self.stopped)).await
                {
                    Some(stream) => stream,
                    None => return,
                }
            }
        };
        let deadlines = Arc::new(Deadlines::new(self.limits));
        let request_line = Arc::new(RequestLine::default());
        let (for_socket, line) = (Arc::clone(&deadlines), Arc::clone(&request_line));
        let socket = TokioIo::new(Socket { stream, deadlines: for_socket, request_line });
        let (edge, answering, peer) = (&self.edge, &deadlines, self.peer.ip());
        let service = service_fn(move |request: http::Request<Incoming>| {
            let time = answering.request_began();
            let mut request = request.map(|body| TimedBody::new(body, time, answering));
            if line.take_fragment() {
                request.extensions_mut().insert(HasFragment);
            }
            edge.answer(request, peer).map(move |mut response| {
                if !answering.answered() {
                    // hyper would close without a word unless the rest happens to be there already.
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            })
        });
        let mut http = http1::Builder::new()
            .header_read_timeout(None)
            // One `send` of head and body together is cheaper than a `writev` of two pieces.
            .writev(false)
            .max_header_size(HEAD_BYTES)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(socket, service);
        let mut timer = std::pin::pin!(sleep_until(deadlines.check().unwrap_or_else(|_| Instant::now())));
        let told = self.stopped.clone();
        let mut stop = std::pin::pin!(self.stopped.wait_for(|stopped| *stopped));
        let (mut awaited, mut stopping) = (false, false);
        let expired = poll_fn(|cx| {
            loop {
                // Errors are the client's: a reset, or bytes that are not HTTP, which hyper has answered.
                if Pin::new(&mut http).poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                // The timer and the stop seldom come, and polling them costs several times what looking at them does.
                // Once polled, each wakes this task when it comes: until then it need not be polled again.
                if awaited && !timer.is_elapsed() && (stopping || matches!(told.has_changed(), Ok(false))) {
                    return Poll::Pending;
                }
                awaited = true;
                if timer.as_mut().poll(cx).is_ready() {
                    match deadlines.check() {
                        Ok(next) => timer.as_mut().reset(next),
                        Err(phase) => return Poll::Ready(Some(phase)),
                    }
                } else if !stopping && stop.as_mut().poll(cx).is_ready() {
                    stopping = true;
                    Pin::new(&mut http).graceful_shutdown();
                } else {
                    return Poll::Pending;
                }
                awaited = false;
            }
        })
        .await;
        if let Some(phase) = expired {
            edge.connections().expire(match phase {
                Phase::Head => Expired::Head,
                Phase::Idle => Expired::Idle,
                Phase::Handling | Phase::Answering | Phase::Blocked => Expired::Answer,
            });
        }
        let mut stream = http.into_parts().io.into_inner().stream;
        match expired {
            Some(Phase::Head) => {
                let answer = head_timeout(self.limits.head);
                if timeout(LINGER, stream.write_all(&answer)).await.is_err() {
                    return;
                }
            }
            // There is nothing to say, but that it is the end: through TLS, a connection that only breaks off looks cut.
            Some(Phase::Idle) => {
                let _ = timeout(LINGER, stream.shutdown()).await;
                return;
            }
            // A client that does not read would not read this either.
            Some(_) => return,
            None => {}
        }
        let _ = timeout(LINGER, stream.linger()).await;
    }
}

/// The stream once TLS is agreed on. A handshake may take as long as a head, and ends where the service is to stop.
async fn handshake(
    stream: TcpStream,
    tls: &Tls,
    peer: SocketAddr,
    limits: Limits,
    edge: &ListenerService,
    stopped: &mut watch::Receiver<bool>,
) -> Option<Stream> {
    let secured = tokio::select! {
        secured = timeout(limits.head, Stream::secure(stream, tls, peer)) => match secured {
            Ok(secured) => secured.ok()?,
            Err(_) => {
                edge.connections().expire(Expired::Handshake);
                return None;
            }
        },
        _ = stopped.wait_for(|stopped| *stopped) => return None,
    };
    match secured {
        Secured::Tls(stream) => Some(stream),
        Secured::Told(mut stream) => {
            let _ = timeout(LINGER, stream.linger()).await;
            None
        }
    }
}

/// The answer to a head that did not arrive in time, of which there is no request to give to a handler.
fn head_timeout(limit: Duration) -> Vec<u8> {
    let message = format!("The head of the request did not arrive within {} seconds.", limit.as_secs_f32());
    ApiError::new(Code::RequestTimeout, message).last_response()
}

/// The socket, which reports to the deadlines what it sees.
struct Socket {
    stream: Stream,
    deadlines: Arc<Deadlines>,
    request_line: Arc<RequestLine>,
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Poll::Ready(Ok(())) = read {
            if self.deadlines.received() {
                self.request_line.begin();
            }
            self.request_line.received(&buffer.filled()[before..]);
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if written.is_pending() {
            self.deadlines.write_blocked();
        }
        written
    }

    /// hyper flushes once its own buffer is empty.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        match flushed {
            Poll::Ready(_) => self.deadlines.flushed(),
            // Only through TLS, which takes what is written before the network does.
            Poll::Pending => self.deadlines.flush_blocked(),
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
