//! Listeners, connections and the stop: HTTP/1 on hyper, plain or through TLS, with limits that hyper leaves to its user.

mod body;
mod connection;
mod deadlines;
mod stream;
mod tls;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};

use crate::http::{Api, Edge, idempotency, limits};
use connection::Connection;
pub use tls::Tls;

/// How long open requests may take to end once a stop was asked for.
const DRAIN: Duration = Duration::from_secs(30);

/// How long to wait before accepting again where the system is out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How many connections the operations door takes beside those of the public doors.
const OPERATOR_CONNECTIONS: usize = 16;

/// How many connections too many may be told so at once, each of which takes until its client has sent its request;
/// further ones wait in the listener's backlog for it.
fn turned_away(connections: usize) -> usize {
    (connections / 8).clamp(16, 1_024)
}

/// How many are told so in a second, once as many have been: each takes as long as three lists. Clients that come back at
/// once, whatever `Retry-After` says, must not take the time of those who have a slot.
const TURNED_AWAY_A_SECOND: u32 = 1_500;

/// How much of its answers a connection may leave with the system before the network takes it, in bytes. Without a limit
/// those who ask and do not read hold megabytes each; where thousands do, the system runs short of memory for all sockets
/// and then gives more to the last of them than to the first, which looks as if they read
/// (the kernel's ip-sysctl, `tcp_notsent_lowat`).
const UNSENT_BYTES: u32 = 128 * 1024;

/// Descriptors that are not for public connections: the database, the listeners, the log, and the operator.
const RESERVED_DESCRIPTORS: usize = 64 + OPERATOR_CONNECTIONS;

/// The deadlines of a connection and how many there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For the head of a request, from its first byte.
    pub head: Duration,
    /// For a whole request, from its first byte.
    pub request: Duration,
    /// For the next request to begin.
    pub idle: Duration,
    /// For the client to take an answer.
    pub answer: Duration,
    pub connections: usize,
    /// How long to go on answering, not ready, before the listeners close.
    pub drain_delay: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: limits::HEAD,
            request: limits::REQUEST,
            idle: limits::IDLE,
            answer: limits::ANSWER,
            connections: connections_within_descriptors(),
            drain_delay: Duration::ZERO,
        }
    }
}

/// Whose connections a door takes: the public doors share the allowed number of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Public,
    Operator,
}

/// How far a stop has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// None was asked for.
    No,
    /// Not ready any more, no new connections, open requests answered.
    Drain,
    /// Open requests are cut off.
    Now,
}

/// Answers on `doors` until told to stop, by whoever holds the other end of `stop` or has let go of it. With `tls`, all
/// doors speak it and nothing else.
pub async fn run(
    doors: Vec<(TcpListener, Edge, Access)>,
    tls: Option<Tls>,
    api: Api,
    limits: Limits,
    mut stop: watch::Receiver<Stop>,
) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let (stopping, stopped) = watch::channel(false);
    for (listener, edge, access) in doors {
        // However many clients there are, who runs the service still gets in.
        let slots = match access {
            Access::Public => Arc::clone(&slots),
            Access::Operator => Arc::new(Semaphore::new(OPERATOR_CONNECTIONS)),
        };
        // Whoever waits is taken at once, also where thousands of requests stand in the way of the next turn.
        tokio::spawn(unconstrained(accept(listener, tls.clone(), edge, limits, slots, stopped.clone())));
    }
    let following = tokio::spawn({
        let api = api.clone();
        let certificate = async move {
            match tls {
                Some(tls) => tls.follow().await,
                None => std::future::pending().await,
            }
        };
        async move {
            let (keyring, requests) = (&api.keyring, &api.requests);
            let forgetting = idempotency::forget_expired(&api.store, &api.clock);
            tokio::join!(
                keyring.follow(),
                keyring.write_down_uses(),
                requests.follow(&api.clock),
                forgetting,
                certificate
            )
        }
    });

    // An error means that nobody can ask any more, which asks for a stop too.
    let _ = stop.wait_for(|stop| *stop >= Stop::Drain).await;
    api.start_draining();
    let drained = async {
        tokio::time::sleep(limits.drain_delay).await;
        stopping.send_replace(true);
        let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
        // Every slot back means every connection closed.
        if tokio::time::timeout(DRAIN, slots.acquire_many(all)).await.is_err() {
            tracing::warn!("some requests did not end in time and are cut off");
        }
    };
    tokio::select! {
        () = drained => {}
        Ok(_) = stop.wait_for(|stop| *stop == Stop::Now) => tracing::warn!("stopping at once"),
    }
    following.abort();
    if *stop.borrow() != Stop::Now {
        api.keyring.flush().await;
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<Tls>,
    edge: Edge,
    limits: Limits,
    slots: Arc<Semaphore>,
    mut stopped: watch::Receiver<bool>,
) {
    let turned_away = Arc::new(Semaphore::new(turned_away(limits.connections)));
    // Connections have it from their listener.
    if let Err(error) = SockRef::from(&listener).set_tcp_notsent_lowat(UNSENT_BYTES) {
        tracing::warn!(%error, "clients that do not read may take more memory than they should");
    }
    // When the next one may be turned away.
    let mut paced = Instant::now();
    loop {
        // Before a connection is taken there must be a slot for it, or at least a place to refuse it from. Neither is
        // held while nobody comes, since doors share the slots.
        let accepted = async {
            tokio::select! {
                slot = slots.acquire() => drop(slot),
                () = async {
                    drop(turned_away.acquire().await);
                    sleep_until(paced).await;
                } => {}
            }
            listener.accept().await
        };
        let accepted = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, peer)) => match Arc::clone(&slots).try_acquire_owned() {
                Ok(slot) => {
                    let connection = Connection::new(stream, tls.clone(), peer, edge.clone(), limits, stopped.clone());
                    tokio::spawn(async move {
                        connection.run().await;
                        drop(slot);
                    });
                }
                Err(_) => {
                    edge.connections().refuse();
                    let second = Duration::from_secs(1);
                    paced = paced.max(Instant::now() - second) + second / TURNED_AWAY_A_SECOND;
                    if tls.is_some() {
                        // It would take a handshake to say so, which a flood must not cost.
                        continue;
                    }
                    if let Some(stream) = connection::turn_away_at_once(stream) {
                        let place = Arc::clone(&turned_away).acquire_owned().await;
                        tokio::spawn(async move {
                            connection::turn_away(stream).await;
                            drop(place);
                        });
                    }
                }
            },
            // The client went away while it waited: that is its business.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "can't accept connections for the moment");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// As many connections as the process may have file descriptors for, once it has asked for all it can get.
fn connections_within_descriptors() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: now.maximum, maximum: now.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        Err(_) => now.current,
    };
    let descriptors = usize::try_from(current.unwrap_or(u64::MAX)).unwrap_or(usize::MAX).min(65_536);
    let public = descriptors.saturating_sub(RESERVED_DESCRIPTORS);
    public.saturating_sub(turned_away(public)).max(8)
}
