//! The bytes of a connection, plain or through TLS.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::{Rejection, Service};
use crate::tls::Tls;

/// Maximum time to read what a client still sends after the last response. Closing with unread bytes would
/// reset the connection, and the client might never see the response.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Left: plain. Right: TLS, boxed because it is large and most connections of a service behind a proxy are plain.
pub type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

pub fn tcp(stream: &Stream) -> &TcpStream {
    match stream {
        Stream::Left(plain) => plain,
        Stream::Right(tls) => tls.get_ref().0,
    }
}

/// Performs the TLS handshake. Returns a client that speaks plain HTTP after sending it a rejection, which it may still be
/// reading. Errors are the client's, which gets an alert.
pub async fn secure(mut stream: TcpStream, tls: &Tls, peer: SocketAddr, service: &impl Service) -> io::Result<Stream> {
    // TLS begins with the record type 22 (RFC 8446, section 5.1), HTTP with the name of a method.
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first[0].is_ascii_uppercase() {
        tracing::debug!(%peer, "plain HTTP on a TLS listener");
        stream.write_all(&service.reject(Rejection::TlsRequired)).await?;
        return Ok(Either::Left(stream));
    }
    let stream = tls.acceptor().accept(stream).await.inspect_err(|error| {
        tracing::debug!(%peer, %error, "TLS handshake failed");
    })?;
    Ok(Either::Right(Box::new(stream)))
}

/// Closes the sending side and reads until the client closes too, for at most [`LINGER_TIMEOUT`].
pub async fn linger(mut stream: Stream) {
    let closed = async {
        stream.shutdown().await?;
        while stream.read(&mut [0; 4096]).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    let _ = timeout(LINGER_TIMEOUT, closed).await;
}
