//! Relay state shared with request handlers and metrics.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tokio::sync::Notify;

use crate::domain::Timestamp;
use crate::telemetry::metrics::{Counter, Exposition};

/// State of this process's relay.
#[derive(Debug, Default)]
pub struct Status {
    message_queued: Notify,
    is_active: AtomicBool,
    /// Last count of queued messages.
    queued: AtomicI64,
    relayed: Counter,
    failures: Counter,
    /// Milliseconds since 1970. 0 before the first acknowledgement.
    last_acknowledged: AtomicI64,
}

impl Status {
    /// Wakes the relay, so that a new message is sent at once.
    pub fn message_queued(&self) {
        self.message_queued.notify_one();
    }

    pub(super) async fn next_message(&self) {
        self.message_queued.notified().await;
    }

    pub(super) fn set_active(&self) {
        self.is_active.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_standby(&self) {
        self.is_active.store(false, Ordering::Relaxed);
        self.queued.store(0, Ordering::Relaxed);
    }

    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    pub(super) fn set_queued(&self, queued: u64) {
        self.queued.store(i64::try_from(queued).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    pub(super) fn acknowledged(&self, messages: usize, now: Timestamp) {
        self.relayed.add(messages as u64);
        self.last_acknowledged.store(now.as_milliseconds(), Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failures.increment();
    }

    pub fn write(&self, out: &mut Exposition) {
        out.gauge("petstore_relay_active", "1 if this process is the active relay, otherwise 0.")
            .sample(&[], u8::from(self.is_active()));
        out.gauge(
            "petstore_messages_waiting",
            "Messages not yet acknowledged by the web server, counted up to 10,000.",
        )
        .sample(&[], self.queued.load(Ordering::Relaxed));
        out.counter("petstore_messages_relayed_total", "Messages acknowledged by the web server.")
            .sample(&[], self.relayed.get());
        out.counter("petstore_relay_failures_total", "Failed rounds of relaying, each of one or more messages.")
            .sample(&[], self.failures.get());
        let last = self.last_acknowledged.load(Ordering::Relaxed) as f64 / 1_000.0;
        out.gauge(
            "petstore_relay_last_acknowledgement_timestamp_seconds",
            "Time of the last acknowledgement by the web server, in seconds since 1970; 0 before the first.",
        )
        .sample(&[], last);
    }
}
