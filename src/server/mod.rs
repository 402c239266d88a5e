//! Listeners, connections and the stop: HTTP/1 on hyper, plain or through TLS, with limits that hyper leaves to its user.

mod body;
mod connection;
mod date;
mod deadlines;
mod load_shedding;
mod request_line;
mod stream;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::unconstrained;

use crate::http::{Api, ListenerService, idempotency, limits};
use connection::Connection;
pub use date::prepare_thread;
use load_shedding::LoadShedding;
pub use tls::Tls;

/// How long open requests may take to end once a stop was asked for.
const DRAIN: Duration = Duration::from_secs(30);

/// How long to wait before accepting again where the system is out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How many connections the operations listener takes beside those of the public listeners.
const OPERATOR_CONNECTIONS: usize = 16;

/// How much of its answers a connection may leave with the system before the network takes it, in bytes. Without a
/// limit those who ask and do not read hold megabytes each; where thousands do, the system runs short of memory for all
/// sockets and then gives more to the last of them than to the first, which looks as if they read (the kernel's
/// ip-sysctl, `tcp_notsent_lowat`).
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

/// Whose connections a listener takes: the public listeners share the allowed number of them.
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

/// Answers on `listeners` until told to stop, by whoever holds the other end of `stop` or has let go of it. With `tls`, all
/// listeners speak it and nothing else.
pub async fn run(
    listeners: Vec<(TcpListener, ListenerService, Access)>,
    tls: Option<Tls>,
    api: Api,
    limits: Limits,
    mut stop: watch::Receiver<Stop>,
) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let (stopping, stopped) = watch::channel(false);
    for (listener, edge, access) in listeners {
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
            let (api_keys, requests) = (&api.api_keys, &api.requests);
            let forgetting = idempotency::forget_expired(&api.store, &api.clock);
            tokio::join!(
                api_keys.follow(),
                api_keys.write_down_uses(),
                requests.follow(&api.clock),
                api.traffic.refusals.follow(),
                api.unstored_sessions.follow(),
                api.clock.follow(),
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
    api.traffic.refusals.report();
    api.unstored_sessions.report();
    if *stop.borrow() != Stop::Now {
        api.api_keys.flush().await;
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<Tls>,
    edge: ListenerService,
    limits: Limits,
    slots: Arc<Semaphore>,
    mut stopped: watch::Receiver<bool>,
) {
    // Connections have it from their listener.
    if let Err(error) = SockRef::from(&listener).set_tcp_notsent_lowat(UNSENT_BYTES) {
        tracing::warn!(%error, "clients that do not read may take more memory than they should");
    }
    let mut load_shedding = LoadShedding::new(limits.connections);
    loop {
        let (accepted, slot) = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            next = next(&listener, &slots, &load_shedding) => next,
        };
        match (accepted, slot) {
            (Ok((stream, peer)), Some(slot)) => {
                let connection = Connection::new(stream, tls.clone(), peer, edge.clone(), limits, stopped.clone());
                tokio::spawn(async move {
                    connection.run().await;
                    drop(slot);
                });
            }
            (Ok((stream, _)), None) => {
                edge.connections().refuse();
                load_shedding.turn_away(stream, tls.is_some()).await;
            }
            // The client went away while it waited: that is its business.
            (Err(error), _) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            (Err(error), _) => {
                tracing::warn!(%error, "can't accept connections for the moment");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Takes a connection as soon as there is a slot for it or it may be told that there is none. No slot is held while
/// nobody comes, since listeners share them.
async fn next(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    load_shedding: &LoadShedding,
) -> (io::Result<(TcpStream, SocketAddr)>, Option<OwnedSemaphorePermit>) {
    tokio::select! {
        biased;
        slot = Arc::clone(slots).acquire_owned() => {
            // Given back before this, it would go to a listener that waits for it, and who is here would be refused.
            if let Some(accepted) = listener.accept().now_or_never() {
                return (accepted, slot.ok());
            }
        }
        () = load_shedding.ready() => {}
    }
    let accepted = listener.accept().await;
    (accepted, Arc::clone(slots).try_acquire_owned().ok())
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
    public.saturating_sub(load_shedding::places(public)).max(8)
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test]
    async fn a_slot_that_gets_free_goes_to_one_who_waits_and_nobody_is_refused() {
        let slots = Arc::new(Semaphore::new(1));
        let taken = Arc::clone(&slots).acquire_owned().await;
        let (mut clients, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            clients.push(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
            let mut load_shedding = LoadShedding::new(1);
            load_shedding.next += Duration::from_secs(60);
            let slots = Arc::clone(&slots);
            waiting.push(tokio::spawn(async move { next(&listener, &slots, &load_shedding).await }));
        }
        sleep(Duration::from_millis(20)).await;
        assert!(waiting.iter().all(|one| !one.is_finished()), "nobody is told before it is time");

        drop(taken);
        let mut first = timeout(Duration::from_secs(10), futures_util::future::select_all(waiting)).await.unwrap();
        let (accepted, slot) = first.0.unwrap();
        assert!(accepted.is_ok() && slot.is_some(), "who waits gets the slot");
        sleep(Duration::from_millis(20)).await;
        assert!(!first.2.remove(0).is_finished(), "and the other goes on waiting");
    }
}
