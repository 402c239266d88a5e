//! The deadlines of connections and their number.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{OPERATOR_CONNECTIONS, load_shedding};

/// File descriptors that are not for public connections: the database, the listeners, the log, and the operator, who may have
/// as many connections again that are being rejected.
const RESERVED_DESCRIPTORS: usize = 64 + 2 * OPERATOR_CONNECTIONS;

/// The deadlines of a connection, and the number of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For the head of a request, from its first byte.
    pub head: Duration,
    /// For a whole request, from its first byte.
    pub request: Duration,
    /// For the next request to begin. The default is longer than the 60 s that proxies commonly use, so that the proxy
    /// closes first and no request meets a closing connection.
    pub idle: Duration,
    /// For the client to take a response, or 64 KiB of it.
    pub answer: Duration,
    /// Maximum number of connections of all public listeners.
    pub connections: usize,
    /// Delay between the request to stop and the last accepted connection.
    pub drain_delay: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            request: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            answer: Duration::from_secs(30),
            connections: connections_within_descriptors(),
            drain_delay: Duration::ZERO,
        }
    }
}

/// Raises the process's limit of file descriptors as far as allowed. Returns how many connections they suffice for.
fn connections_within_descriptors() -> usize {
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: now.maximum, maximum: now.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        Err(_) => now.current,
    };
    let descriptors = usize::try_from(current.unwrap_or(u64::MAX)).unwrap_or(usize::MAX).min(65_536);
    let public = descriptors.saturating_sub(RESERVED_DESCRIPTORS);
    public.saturating_sub(load_shedding::max_waiting(public)).max(8)
}
