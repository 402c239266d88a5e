//! Relay state shared with request handlers and metrics.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::domain::Timestamp;
use crate::telemetry::metrics::{Counter, Exposition};

/// State of this process's relay.
#[derive(Debug, Default)]
pub struct Status {
    pub(super) message_queued: Notify,
    is_active: AtomicBool,
    /// Last count of queued messages.
    queued: AtomicU64,
    relayed: Counter,
    pub(super) failures: Counter,
    /// Milliseconds since 1970. 0 before the first acknowledgement.
    last_acknowledged: AtomicI64,
}

impl Status {
    /// Wakes the relay, so that a new message is sent at once.
    pub fn message_queued(&self) {
        self.message_queued.notify_one();
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
        self.queued.store(queued, Ordering::Relaxed);
    }

    pub(super) fn acknowledged(&self, messages: usize, now: Timestamp) {
        self.relayed.add(messages as u64);
        self.last_acknowledged.store(now.as_milliseconds(), Ordering::Relaxed);
    }

    pub fn write(&self, out: &mut Exposition) {
        out.value("petstore_relay_active", u8::from(self.is_active()));
        out.value("petstore_messages_waiting", self.queued.load(Ordering::Relaxed));
        out.value("petstore_messages_relayed_total", self.relayed.get());
        out.value("petstore_relay_failures_total", self.failures.get());
        let last = self.last_acknowledged.load(Ordering::Relaxed) as f64 / 1_000.0;
        out.value("petstore_relay_last_acknowledgement_timestamp_seconds", last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standby_reports_no_queued_messages() {
        let status = Status::default();
        let written = || {
            let mut out = Exposition::default();
            status.write(&mut out);
            let samples = out.0.lines().filter(|line| !line.starts_with('#'));
            samples.map(|sample| sample.split_once(' ').unwrap().1.to_owned()).collect::<Vec<_>>()
        };
        status.set_active();
        status.set_queued(5);
        status.acknowledged(2, Timestamp::from_milliseconds(1_795_167_000_500));
        assert_eq!(written(), ["1", "5", "2", "0", "1795167000.5"]);
        status.set_standby();
        assert_eq!(written()[..2], ["0", "0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn message_wakes_the_relay_once() {
        let status = Status::default();
        let next = || tokio::time::timeout(std::time::Duration::from_mins(1), status.message_queued.notified());
        status.message_queued();
        assert!(next().await.is_ok() && next().await.is_err());
    }
}
