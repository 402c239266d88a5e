//! The bytes of a connection, plain or through TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::tls::Tls;
use crate::http::{ApiError, Code};

pub enum Stream {
    Plain(TcpStream),
    /// In a box, since it is large and most connections of a service behind a proxy are plain.
    Tls(Box<TlsStream<TcpStream>>),
}

/// What came of a handshake.
pub enum Secured {
    Tls(Stream),
    /// The client speaks plain HTTP. It was told, and may still be reading.
    Told(Stream),
}

impl Stream {
    /// Shakes hands with the client. Its errors are the client's, which is told by an alert.
    pub async fn secure(mut stream: TcpStream, tls: &Tls, peer: SocketAddr) -> io::Result<Secured> {
        // TLS begins with the type of a record, 22 (RFC 8446, section 5.1), and HTTP with the name of a method.
        let mut first = [0];
        stream.peek(&mut first).await?;
        if first[0].is_ascii_uppercase() {
            tracing::debug!(%peer, "plain HTTP came where TLS is spoken");
            stream.write_all(&https_only()).await?;
            return Ok(Secured::Told(Self::Plain(stream)));
        }
        let stream = tls.acceptor().accept(stream).await.inspect_err(|error| {
            tracing::debug!(%peer, %error, "a TLS handshake failed");
        })?;
        Ok(Secured::Tls(Self::Tls(Box::new(stream))))
    }

    /// Says that nothing follows, and reads on until the client has heard it.
    pub async fn linger(&mut self) -> io::Result<()> {
        self.shutdown().await?;
        let mut rest = [0; 4096];
        while self.read(&mut rest).await? > 0 {}
        Ok(())
    }
}

/// Not a redirect: a key that was sent in the clear should be noticed, and not work all the same.
fn https_only() -> Vec<u8> {
    let message = "This port speaks TLS: the address begins with https://.";
    ApiError::new(Code::InvalidValue, message).last_response()
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
