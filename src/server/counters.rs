//! Counters of a listener's connections.

use crate::telemetry::metrics::{Counter, Exposition, Gauge, One};

/// The connections of one listener.
#[derive(Debug, Default)]
pub struct Connections {
    open: Gauge,
    accepted: Counter,
    refused: Counter,
    expired: [Counter; 4],
    malformed: Counter,
}

/// The reason for closing a connection at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    Handshake,
    Head,
    Idle,
    Answer,
}

impl Expired {
    const ALL: [(Self, &str); 4] =
        [(Self::Handshake, "handshake"), (Self::Head, "head"), (Self::Idle, "idle"), (Self::Answer, "answer")];
}

impl Connections {
    /// Counts an accepted connection, which is open until the returned guard is dropped.
    pub fn accept(&self) -> One<'_> {
        self.accepted.increment();
        self.open.one()
    }

    pub fn refuse(&self) {
        self.refused.increment();
    }

    pub fn expire(&self, what: Expired) {
        self.expired[what as usize].increment();
    }

    pub fn reject_malformed(&self) {
        self.malformed.increment();
    }

    /// Writes the counters of all listeners, each with its name.
    pub fn write(listeners: &[(&str, &Self)], out: &mut Exposition) {
        let each = || listeners.iter().map(|(name, connections)| (("listener", *name), *connections));
        let mut open = out.gauge("petstore_connections_open", "Open connections.");
        for (listener, connections) in each() {
            open.sample(&[listener], connections.open.get());
        }
        let mut accepted = out.counter("petstore_connections_accepted_total", "Accepted connections.");
        for (listener, connections) in each() {
            accepted.sample(&[listener], connections.accepted.get());
        }
        let why = "Connections rejected because the connection limit was reached.";
        let mut refused = out.counter("petstore_connections_refused_total", why);
        for (listener, connections) in each() {
            refused.sample(&[listener], connections.refused.get());
        }
        let why = "Connections closed at a deadline, by what exceeded it.";
        let mut expired = out.counter("petstore_connections_expired_total", why);
        for (listener, connections) in each() {
            for (reason, name) in Expired::ALL {
                expired.sample(&[listener, ("reason", name)], connections.expired[reason as usize].get());
            }
        }
        let why = "Requests that are not valid HTTP or whose head is too large. They are not logged.";
        let mut malformed = out.counter("petstore_http_requests_malformed_total", why);
        for (listener, connections) in each() {
            malformed.sample(&[listener], connections.malformed.get());
        }
    }
}
