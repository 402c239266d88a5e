//! The bytes of a connection, plain or through TLS.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::tls::Tls;
use super::{Rejection, Service};

/// Left: plain. Right: TLS, boxed because it is large and most connections of a service behind a proxy are plain.
pub type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

pub fn tcp(stream: &Stream) -> &TcpStream {
    match stream {
        Stream::Left(plain) => plain,
        Stream::Right(tls) => tls.get_ref().0,
    }
}

/// The result of a handshake.
pub enum Secured {
    Tls(Stream),
    /// The client speaks plain HTTP. The response was sent, and the client may still be reading it.
    Rejected(Stream),
}

/// Performs the TLS handshake. Errors are the client's, which gets an alert.
pub async fn secure(mut stream: TcpStream, tls: &Tls, peer: SocketAddr, service: &impl Service) -> io::Result<Secured> {
    // TLS begins with the record type 22 (RFC 8446, section 5.1), HTTP with the name of a method.
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first[0].is_ascii_uppercase() {
        tracing::debug!(%peer, "plain HTTP on a TLS listener");
        stream.write_all(&service.reject(Rejection::TlsRequired)).await?;
        return Ok(Secured::Rejected(Either::Left(stream)));
    }
    let stream = tls.acceptor().accept(stream).await.inspect_err(|error| {
        tracing::debug!(%peer, %error, "TLS handshake failed");
    })?;
    Ok(Secured::Tls(Either::Right(Box::new(stream))))
}

/// Closes the sending side and reads until the client closes too.
pub async fn linger(stream: &mut Stream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}
