#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod body;
mod connection;
mod counters;
mod deadlines;
pub mod framing;
mod limits;
mod load_shedding;
mod request_line;
mod service;
mod stream;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinSet, unconstrained};
use tokio::time::{sleep, timeout};

pub use body::{BodyTimeout, BodyTooLarge, TimedBody};
use connection::Serving;
pub use counters::{Connections, Expired};
pub use limits::Limits;
use limits::connections_within_descriptors;
use load_shedding::LoadShedding;
#[doc(hidden)] // for fuzzing
pub use request_line::RequestLine;
pub use service::{NoResponse, Rejection, Service, ServiceFn, service_fn};
pub use tls::{InvalidCertificate, Tls};

/// Pause before accepting again when the system is out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time for listeners to end once no public connection is open. Those whose runtime the service blocks do not.
const LISTENERS_END: Duration = Duration::from_secs(1);

/// Connections of an operator's listener, beside those of the public listeners.
const OPERATOR_CONNECTIONS: usize = 16;

/// Maximum number of response bytes that a connection may leave unsent in the system. Without a limit, clients that do
/// not read hold megabytes each. With thousands of them, the system runs short of memory for all sockets. It then gives
/// the last of them more than the first, which looks as if they read (`tcp_notsent_lowat` in the kernel's ip-sysctl).
const UNSENT_BYTES: u32 = 128 * 1024;

/// The clients that a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All public listeners share [`Limits::connections`].
    Public,
    /// Has 16 connections of its own, so that the operator can connect even when all public ones are taken.
    Operator,
}

/// The progress of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// No stop was requested.
    No,
    /// Accept no connections, answer open requests, close idle connections. A client that sends its next request at that moment
    /// gets no response, and may repeat it on another connection.
    Drain,
    /// Close all connections.
    Now,
}

/// Serves one listener with the default [`Limits`] until `stop` ends, then answers open requests. Returns when all
/// connections are closed, at most 30 s later.
///
/// # Panics
///
/// Panics outside of a tokio runtime with I/O and time.
pub async fn serve(listener: TcpListener, service: impl Service, stop: impl Future<Output = ()>) {
    let (stops, stopped) = watch::channel(Stop::No);
    let stop = async {
        stop.await;
        stops.send_replace(Stop::Drain);
    };
    tokio::join!(Server::new(listener, service).run(stopped), stop);
}

/// A server of one or more listeners. Later versions add fields: begin with [`Server::new`].
pub struct Server<S> {
    /// Each with its service. A socket must be registered with the runtime of its connections.
    pub listeners: Vec<(TcpListener, S, Access)>,
    /// With it, all listeners speak TLS only.
    pub tls: Option<Tls>,
    /// The bounds of connections and their number.
    pub limits: Limits,
    /// The runtime of the public listeners' connections. Those of the operator's run on the runtime that calls [`Self::run`],
    /// so that they are served even if the service keeps all threads of this one busy.
    pub public: Handle,
}

impl<S: Service> Server<S> {
    /// A server of one public listener, with the default [`Limits`], on the current runtime.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn new(listener: TcpListener, service: S) -> Self {
        let listeners = vec![(listener, service, Access::Public)];
        Self { listeners, tls: None, limits: Limits::default(), public: Handle::current() }
    }

    /// Serves until `stop` says otherwise or its sender is dropped. Returns when all connections are closed. A drain gives those
    /// of the operator one second after the last public one.
    pub async fn run(self, mut stop: watch::Receiver<Stop>) {
        let limits = self.limits;
        let connections = limits.connections.unwrap_or_else(connections_within_descriptors);
        let shared = Room::new(connections);
        let (stopping, stopped) = watch::channel(false);
        // Dropping it closes all connections.
        let mut accepting = JoinSet::new();
        for (listener, service, access) in self.listeners {
            let (runtime, room) = match access {
                Access::Public => (&self.public, shared.clone()),
                Access::Operator => (&Handle::current(), Room::new(OPERATOR_CONNECTIONS)),
            };
            let serving = Serving { service, tls: self.tls.clone(), limits, stopped: stopped.clone() };
            // Unconstrained, so that thousands of ready requests do not delay new connections.
            accepting.spawn_on(unconstrained(accept(listener, serving, room)), runtime);
        }

        // An error means that the sender was dropped, which is a stop too.
        let _ = stop.wait_for(|stop| *stop >= Stop::Drain).await;
        let drained = async {
            sleep(limits.drain_delay).await;
            stopping.send_replace(true);
            let all_closed = async {
                // All slots are free once no public connection is open.
                let _ = shared.slots.acquire_many(connections.try_into().unwrap_or(u32::MAX)).await;
                let _ = timeout(LISTENERS_END, async { while accepting.join_next().await.is_some() {} }).await;
            };
            if timeout(limits.drain, all_closed).await.is_err() {
                tracing::warn!("drain timed out, closing remaining connections");
            }
        };
        tokio::select! {
            () = drained => {}
            Ok(_) = stop.wait_for(|stop| *stop == Stop::Now) => tracing::info!("closing all connections"),
        }
    }
}

/// The connections that listeners may have.
#[derive(Clone)]
struct Room {
    slots: Arc<Semaphore>,
    /// For clients that are being rejected.
    rejected: Arc<Semaphore>,
}

impl Room {
    fn new(connections: usize) -> Self {
        let rejected = Arc::new(Semaphore::new(load_shedding::max_waiting(connections)));
        Self { slots: Arc::new(Semaphore::new(connections)), rejected }
    }
}

async fn accept<S: Service>(listener: TcpListener, mut serving: Serving<S>, Room { slots, rejected }: Room) {
    // Accepted sockets inherit it.
    if let Err(error) = SockRef::from(&listener).set_tcp_notsent_lowat(UNSENT_BYTES) {
        tracing::warn!(%error, "cannot limit unsent bytes, clients that do not read may take more memory");
    }
    let mut load_shedding = LoadShedding::new(rejected);
    let mut connections = JoinSet::new();
    loop {
        let (accepted, slot) = tokio::select! {
            biased;
            _ = serving.stopped.wait_for(|stopped| *stopped) => break,
            Some(_) = connections.join_next() => continue,
            next = next(&listener, &slots, &load_shedding) => next,
        };
        match (accepted, slot) {
            (Ok((stream, peer)), Some(slot)) => {
                let serving = serving.clone();
                connections.spawn(async move {
                    serving.serve(stream, peer).await;
                    drop(slot);
                });
            }
            (Ok((stream, _)), None) => {
                serving.service.connections().refuse();
                // Also logs the rejection, although TLS clients get no response.
                let reject = || serving.service.reject(Rejection::ConnectionLimit);
                let response = catch_unwind(AssertUnwindSafe(reject)).unwrap_or_default();
                load_shedding.reject(stream, serving.tls.is_some(), response).await;
            }
            // The client went away while it was queued.
            (Err(error), _) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            (Err(error), _) => {
                tracing::warn!(%error, "cannot accept connections, retrying");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Accepts a connection as soon as there is a slot for it or it may be rejected. Holds no slot while no client comes,
/// because listeners share the slots.
async fn next(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    load_shedding: &LoadShedding,
) -> (io::Result<(TcpStream, SocketAddr)>, Option<OwnedSemaphorePermit>) {
    tokio::select! {
        biased;
        slot = Arc::clone(slots).acquire_owned() => {
            // Accept before releasing the permit; otherwise another listener could take it and this client would be
            // rejected.
            if let Some(accepted) = listener.accept().now_or_never() {
                return (accepted, slot.ok());
            }
        }
        () = load_shedding.ready() => {}
    }
    let accepted = listener.accept().await;
    (accepted, Arc::clone(slots).try_acquire_owned().ok())
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test]
    async fn free_slot_goes_to_one_waiting_client_and_none_is_rejected() {
        let slots = Arc::new(Semaphore::new(1));
        let taken = Arc::clone(&slots).acquire_owned().await;
        let (mut clients, mut accepting) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            clients.push(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
            let mut load_shedding = LoadShedding::new(Room::new(1).rejected);
            load_shedding.next += Duration::from_secs(60);
            let slots = Arc::clone(&slots);
            accepting.push(tokio::spawn(async move { next(&listener, &slots, &load_shedding).await }));
        }
        sleep(Duration::from_millis(20)).await;
        assert!(accepting.iter().all(|one| !one.is_finished()), "none is rejected before its time");

        drop(taken);
        let mut first = timeout(Duration::from_secs(60), futures_util::future::select_all(accepting)).await.unwrap();
        let (accepted, slot) = first.0.unwrap();
        assert!(accepted.is_ok() && slot.is_some(), "a waiting client gets the slot");
        sleep(Duration::from_millis(20)).await;
        assert!(!first.2.remove(0).is_finished(), "the other client still waits");
    }
}
