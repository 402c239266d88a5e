//! What the relay counts, and how it is woken.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tokio::sync::Notify;

use crate::domain::Timestamp;
use crate::telemetry::metrics::{Counter, Exposition};

/// Of one process' relay.
#[derive(Debug, Default)]
pub struct Status {
    taken_on: Notify,
    relaying: AtomicBool,
    /// How many messages waited when they were last counted.
    waiting: AtomicI64,
    relayed: Counter,
    failures: Counter,
    /// In milliseconds since 1970; 0 before the first.
    last_acknowledged: AtomicI64,
}

impl Status {
    /// To be called when a message was taken on, so that it leaves at once.
    pub fn message_taken_on(&self) {
        self.taken_on.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.taken_on.notified().await;
    }

    pub(super) fn relays(&self) {
        self.relaying.store(true, Ordering::Relaxed);
    }

    pub(super) fn stands_by(&self) {
        self.relaying.store(false, Ordering::Relaxed);
        self.waiting.store(0, Ordering::Relaxed);
    }

    /// Whether this process is the one that relays.
    pub fn is_relaying(&self) -> bool {
        self.relaying.load(Ordering::Relaxed)
    }

    pub(super) fn counted(&self, waiting: u64) {
        self.waiting.store(i64::try_from(waiting).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    pub(super) fn acknowledged(&self, messages: usize, now: Timestamp) {
        self.relayed.add(messages as u64);
        self.last_acknowledged.store(now.as_milliseconds(), Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failures.increment();
    }

    pub fn write(&self, out: &mut Exposition) {
        out.gauge("petstore_relay_active", "1 where this process is the one that relays messages, else 0.")
            .sample(&[], u8::from(self.is_relaying()));
        out.gauge("petstore_messages_waiting", "Messages that no broker has acknowledged, counted up to 10,000.")
            .sample(&[], self.waiting.load(Ordering::Relaxed));
        out.counter("petstore_messages_relayed_total", "Messages that the broker has acknowledged.")
            .sample(&[], self.relayed.get());
        out.counter("petstore_relay_failures_total", "Attempts to relay messages that failed.")
            .sample(&[], self.failures.get());
        let last = self.last_acknowledged.load(Ordering::Relaxed) as f64 / 1_000.0;
        out.gauge(
            "petstore_relay_last_acknowledgement_seconds",
            "When the broker last acknowledged messages, in seconds since 1970; 0 before the first.",
        )
        .sample(&[], last);
    }
}
