//! Connections for which there is no slot: told so, at a pace that leaves those who have one their service.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

use crate::http::ApiError;

/// How many are told so in a second, once as many have been: each takes as long as three lists. Clients that come back
/// at once, whatever `Retry-After` says, must not take the time of those who have a slot.
const A_SECOND: u32 = 1_500;

/// How many are told so before everybody else gets a turn.
const IN_A_ROW: u32 = 512;

/// How long to wait for the request of a client that is turned away.
const PATIENCE: Duration = Duration::from_millis(100);

/// How much of a request is taken off the socket at a time.
const BUFFER: usize = 4_096;

/// Of one listener.
pub struct LoadShedding {
    /// For those whose requests are not here yet; further clients wait in the listener's backlog for one.
    places: Arc<Semaphore>,
    /// When the next one may be told.
    pub next: Instant,
    in_a_row: u32,
}

impl LoadShedding {
    pub fn new(connections: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places(connections))), next: Instant::now(), in_a_row: 0 }
    }

    /// Waits until one more may be told.
    pub async fn ready(&self) {
        drop(self.places.acquire().await);
        sleep_until(self.next).await;
    }

    /// Refuses a connection. Its request is taken off the socket, and not looked at: closing with it unread would reset
    /// the connection, and the client might never see the answer.
    pub async fn turn_away(&mut self, stream: TcpStream, encrypted: bool) {
        let second = Duration::from_secs(1);
        self.next = self.next.max(Instant::now() - second) + second / A_SECOND;
        if encrypted {
            // It would take a handshake to say so, which a flood must not cost.
            return;
        }
        if let Some(stream) = tell_at_once(stream) {
            let place = Arc::clone(&self.places).acquire_owned().await;
            tokio::spawn(async move {
                // Who does not listen has gone.
                let _ = timeout(PATIENCE, tell(stream)).await;
                drop(place);
            });
        }
        self.in_a_row += 1;
        if self.in_a_row == IN_A_ROW {
            self.in_a_row = 0;
            yield_now().await;
        }
    }
}

/// How many may be told so at once where each has to be waited for.
pub fn places(connections: usize) -> usize {
    (connections / 8).clamp(16, 1_024)
}

/// Tells a client whose request is here already, as it is of those who had to queue: a third of the work, since nothing
/// waits. Otherwise hands the connection back.
fn tell_at_once(stream: TcpStream) -> Option<TcpStream> {
    // tokio asks the system only once it was told that there is something, which is too late here.
    let socket = SockRef::from(&stream);
    let mut request = [0; BUFFER];
    match (&*socket).read(&mut request) {
        Ok(taken) if taken < BUFFER && request[..taken].windows(4).any(|end| end == b"\r\n\r\n") => {
            // A socket that nothing was sent on has room for this, and who is gone needs none.
            let _ = (&*socket).write(&refusal());
            None
        }
        Ok(0) => None,
        Ok(_) => Some(stream),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(stream),
        Err(_) => None,
    }
}

/// The same for one that is not, or not all of it: reads until the client has seen the answer and closes.
async fn tell(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(&refusal()).await?;
    stream.shutdown().await?;
    while stream.read(&mut [0; BUFFER]).await? > 0 {}
    Ok(())
}

fn refusal() -> Vec<u8> {
    ApiError::unavailable("all connections are taken").last_response()
}
