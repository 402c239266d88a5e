//! Listeners, connections and the stop: HTTP/1 on hyper, with limits that hyper leaves to its user.

mod body;
mod connection;
mod deadlines;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::http::{Api, Edge, idempotency, limits};
use connection::Connection;

/// How long open requests may take to end once a stop was asked for.
const DRAIN: Duration = Duration::from_secs(30);

/// How long to wait before accepting again where the system is out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How many connections the operations door takes beside those of the public doors.
const OPERATOR_CONNECTIONS: usize = 16;

/// Descriptors that are not for public connections: the database, the listeners, the log, the operator.
const RESERVED_DESCRIPTORS: u64 = 64 + OPERATOR_CONNECTIONS as u64;

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

/// Answers on `doors` until told to stop, by whoever holds the other end of `stop` or has let go of it.
pub async fn run(doors: Vec<(TcpListener, Edge, Access)>, api: Api, limits: Limits, mut stop: watch::Receiver<Stop>) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let (stopping, stopped) = watch::channel(false);
    for (listener, edge, access) in doors {
        // However many clients there are, who runs the service still gets in.
        let slots = match access {
            Access::Public => Arc::clone(&slots),
            Access::Operator => Arc::new(Semaphore::new(OPERATOR_CONNECTIONS)),
        };
        tokio::spawn(accept(listener, edge, limits, slots, stopped.clone()));
    }
    let following = tokio::spawn({
        let api = api.clone();
        async move {
            tokio::join!(
                api.keyring.follow(),
                api.keyring.write_down_uses(),
                api.requests.follow(&api.clock),
                idempotency::forget_expired(&api.store, &api.clock),
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
    edge: Edge,
    limits: Limits,
    slots: Arc<Semaphore>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        // Where all slots are taken, new connections wait in the listener's backlog. None is held while nobody comes,
        // since doors share them.
        let accepted = async {
            drop(slots.acquire().await);
            let accepted = listener.accept().await;
            (Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed"), accepted)
        };
        let (slot, accepted) = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection = Connection::new(stream, peer, edge.clone(), limits, stopped.clone());
                tokio::spawn(async move {
                    connection.run().await;
                    drop(slot);
                });
            }
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
    let descriptors = current.unwrap_or(u64::MAX).min(65_536);
    usize::try_from(descriptors.saturating_sub(RESERVED_DESCRIPTORS).max(8)).unwrap_or(8)
}
