//! Counters of a listener's connections.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts the connections of one listener.
#[derive(Debug, Default)]
pub struct Connections {
    accepted: AtomicU64,
    closed: AtomicU64,
    refused: AtomicU64,
    expired: [AtomicU64; 4],
    malformed: AtomicU64,
}

/// The reason for closing a connection at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expired {
    /// A TLS handshake: [`Limits::head`](crate::Limits::head).
    Handshake,
    /// The head of a request: [`Limits::head`](crate::Limits::head).
    Head,
    /// The next request: [`Limits::idle`](crate::Limits::idle).
    Idle,
    /// The client's reading of a response: [`Limits::answer`](crate::Limits::answer).
    Answer,
}

/// An accepted connection, until it is dropped.
pub struct Open<'c>(&'c Connections);

impl Connections {
    /// Returns the number of open connections.
    pub fn open(&self) -> u64 {
        // In this order, because a connection may close meanwhile.
        let closed = self.closed.load(Relaxed);
        self.accepted().saturating_sub(closed)
    }

    /// Returns the number of accepted connections.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// Returns the number of connections that were rejected because all were taken.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Returns the number of connections that were closed at a deadline.
    pub fn expired(&self, what: Expired) -> u64 {
        self.expired[what as usize].load(Relaxed)
    }

    /// Returns the number of requests that are not valid HTTP or whose head is too large. No service sees them.
    pub fn malformed(&self) -> u64 {
        self.malformed.load(Relaxed)
    }

    pub(super) fn accept(&self) -> Open<'_> {
        self.accepted.fetch_add(1, Relaxed);
        Open(self)
    }

    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(super) fn expire(&self, what: Expired) {
        self.expired[what as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn reject_malformed(&self) {
        self.malformed.fetch_add(1, Relaxed);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Relaxed);
    }
}
