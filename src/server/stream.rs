//! The bytes of a connection, plain or through TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::tls::Tls;
use super::{Rejection, Service};

pub enum Stream {
    Plain(TcpStream),
    /// Boxed, because it is large and most connections of a service behind a proxy are plain.
    Tls(Box<TlsStream<TcpStream>>),
}

/// The result of a handshake.
pub enum Secured {
    Tls(Stream),
    /// The client speaks plain HTTP. The response was sent, and the client may still be reading it.
    Rejected(Stream),
}

impl Stream {
    /// Performs the TLS handshake. Errors are the client's, which gets an alert.
    pub async fn secure(
        mut stream: TcpStream,
        tls: &Tls,
        peer: SocketAddr,
        service: &impl Service,
    ) -> io::Result<Secured> {
        // TLS begins with the record type 22 (RFC 8446, section 5.1), HTTP with the name of a method.
        let mut first = [0];
        stream.peek(&mut first).await?;
        if first[0].is_ascii_uppercase() {
            tracing::debug!(%peer, "plain HTTP on a TLS listener");
            stream.write_all(&service.reject(Rejection::TlsRequired)).await?;
            return Ok(Secured::Rejected(Self::Plain(stream)));
        }
        let stream = tls.acceptor().accept(stream).await.inspect_err(|error| {
            tracing::debug!(%peer, %error, "TLS handshake failed");
        })?;
        Ok(Secured::Tls(Self::Tls(Box::new(stream))))
    }

    /// Closes the sending side and reads until the client closes too.
    pub async fn linger(&mut self) -> io::Result<()> {
        self.shutdown().await?;
        let mut rest = [0; 4096];
        while self.read(&mut rest).await? > 0 {}
        Ok(())
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
