//! The deadlines of connections and their number.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{OPERATOR_CONNECTIONS, load_shedding};

/// File descriptors that are not for public connections: the files and listeners of the program, and the operator, who may have
/// as many connections again that are being rejected.
const RESERVED_DESCRIPTORS: usize = 64 + 2 * OPERATOR_CONNECTIONS;

/// The deadlines of a connection, and the number of connections. Later versions add fields: begin with those of
/// [`Limits::default`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For the head of a request, from its first byte, and for a TLS handshake. 10 s by default. A later head gets 408.
    pub head: Duration,
    /// For a whole request, from its first byte. 30 s by default. A later body ends with [`BodyTimeout`](crate::BodyTimeout).
    pub request: Duration,
    /// For the next request to begin. The default, 75 s, is longer than the 60 s that proxies commonly use, so that the proxy
    /// closes first and no request meets a closing connection.
    pub idle: Duration,
    /// For the client to take a response, or 64 KiB of it. 30 s by default.
    pub answer: Duration,
    /// Maximum number of bytes from the end of a head until the next request: a body with its framing. Up to 64 KiB that arrive
    /// together with the head do not count. A larger body ends with [`BodyTooLarge`](crate::BodyTooLarge), and its connection closes
    /// after the response. 1 MiB by default.
    pub body: usize,
    /// Maximum number of connections of all public listeners. By default as many as the process may have file descriptors, less
    /// 96 and those that are being rejected, at most 65,536. The soft limit of descriptors is raised to the hard one.
    pub connections: Option<usize>,
    /// Delay between the request to stop and the last accepted connection, for balancers that have to notice it. None by default.
    pub drain_delay: Duration,
    /// For open requests to end after that. 30 s by default.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            request: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            answer: Duration::from_secs(30),
            body: 1 << 20,
            connections: None,
            drain_delay: Duration::ZERO,
            drain: Duration::from_secs(30),
        }
    }
}

/// Raises the process's limit of file descriptors as far as allowed. Returns how many connections they suffice for.
pub fn connections_within_descriptors() -> usize {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let current = getrlimit(Resource::Nofile).current;
    let descriptors = usize::try_from(current.unwrap_or(u64::MAX)).unwrap_or(usize::MAX).min(65_536);
    let public = descriptors.saturating_sub(RESERVED_DESCRIPTORS);
    public.saturating_sub(load_shedding::max_waiting(public)).max(8)
}
