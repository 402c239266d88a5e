//! Rejects connections above the limit, at a rate that leaves the accepted ones their service.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

/// Maximum rejections per second, after a burst of as many. Each costs as much as three lists. Clients that
/// ignore `Retry-After` and reconnect at once must not take the time of accepted connections.
const REJECTIONS_PER_SECOND: u32 = 1_500;

/// Consecutive rejections before other tasks get a turn.
const IN_A_ROW: u32 = 512;

/// Maximum time to wait for the request of a rejected client.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(100);

/// Size of a read from the socket, in bytes.
const BUFFER: usize = 4_096;

/// The rejections of one listener.
pub struct LoadShedding {
    /// For clients whose requests have not arrived; further ones wait in the listener's backlog. Shared by listeners that
    /// share their connections.
    waiting: Arc<Semaphore>,
    /// When the next connection may be rejected.
    pub next: Instant,
    in_a_row: u32,
}

impl LoadShedding {
    pub fn new(waiting: Arc<Semaphore>) -> Self {
        Self { waiting, next: Instant::now(), in_a_row: 0 }
    }

    /// Waits until one more connection may be rejected.
    pub async fn ready(&self) {
        drop(self.waiting.acquire().await);
        sleep_until(self.next).await;
    }

    /// Rejects a connection with `response`. Reads and discards its request: closing with unread bytes would reset the
    /// connection, and the client might never see the response.
    ///
    /// Closes encrypted connections without a response, because a flood must not cost TLS handshakes.
    pub async fn reject(&mut self, stream: TcpStream, encrypted: bool, response: Vec<u8>) {
        let second = Duration::from_secs(1);
        self.next = self.next.max(Instant::now() - second) + second / REJECTIONS_PER_SECOND;
        if encrypted {
            return;
        }
        if let Some(stream) = reject_at_once(stream, &response) {
            let permit = Arc::clone(&self.waiting).acquire_owned().await;
            tokio::spawn(async move {
                // Ignore clients that do not read the response.
                let _ = timeout(REQUEST_TIMEOUT, reject_slowly(stream, &response)).await;
                drop(permit);
            });
        }
        self.in_a_row += 1;
        if self.in_a_row == IN_A_ROW {
            self.in_a_row = 0;
            yield_now().await;
        }
    }
}

/// Maximum number of rejected clients whose requests are awaited at once, beside the maximum number of connections.
pub fn max_waiting(connections: usize) -> usize {
    (connections / 8).clamp(16, 1_024)
}

/// Rejects a client whose request has arrived, as it has if the client had to queue. This takes a third of the work,
/// because nothing waits. Otherwise returns the connection.
fn reject_at_once(stream: TcpStream, response: &[u8]) -> Option<TcpStream> {
    // tokio reads only after a readiness event, which is too late here.
    let socket = SockRef::from(&stream);
    let mut request = [0; BUFFER];
    match (&*socket).read(&mut request) {
        Ok(taken) if taken < BUFFER && request[..taken].windows(4).any(|end| end == b"\r\n\r\n") => {
            // The send buffer of an unused socket has room for this. An error means that the client is gone.
            let _ = (&*socket).write(response);
            None
        }
        Ok(0) => None,
        Ok(_) => Some(stream),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(stream),
        Err(_) => None,
    }
}

/// Rejects a client whose request has not arrived in full: reads until the client has seen the response and closes.
async fn reject_slowly(mut stream: TcpStream, response: &[u8]) -> io::Result<()> {
    // Clients discard a response that arrives before they have begun their request.
    stream.readable().await?;
    stream.write_all(response).await?;
    stream.shutdown().await?;
    while stream.read(&mut [0; BUFFER]).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_the_connections_may_wait_for_a_rejection() {
        assert_eq!([1, 800, 100_000].map(max_waiting), [16, 100, 1_024]);
    }
}
