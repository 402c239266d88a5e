//! How much, and for how long: the limits of a request and of its connection.

use std::net::IpAddr;
use std::time::Duration;

/// The largest body, in bytes.
pub const BODY: usize = 64 * 1024;

/// How long the head of a request may take to arrive, from its first byte.
pub const HEAD: Duration = Duration::from_secs(10);

/// How long a whole request may take to arrive, from its first byte.
pub const REQUEST: Duration = Duration::from_secs(30);

/// How long a connection may wait for its next request. Longer than the 60 s for which proxies commonly keep theirs,
/// so that it is the proxy that closes and no request meets a closing connection.
pub const IDLE: Duration = Duration::from_secs(75);

/// How long an answer may take to be read by the client.
pub const ANSWER: Duration = Duration::from_secs(30);

/// The error of a body that did not arrive within [`REQUEST`].
#[derive(Debug, thiserror::Error)]
#[error("The request did not arrive in time.")]
pub struct Late;

/// The address of the network that a request came from; there for what goes through the route table.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);
