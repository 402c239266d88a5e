//! The task that relays while this process holds the lease.

mod sweep;
mod turn;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use sweep::Sweep;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::Status;
use super::deliveries::{Deliveries, PATIENCE, Receiver};
use crate::domain::{AccountId, MessageId};
use crate::runtime::backoff::{self, delay_after};
use crate::runtime::clock::Clock;
use crate::store::{RelayLease, Store, delete_expired};

/// Interval of checks for messages queued by other processes, and for a free lease.
const POLL: Duration = Duration::from_secs(1);

/// Delays after a failure of the database.
const BACKOFF: backoff::Range = (Duration::from_millis(100), Duration::from_secs(5));

/// Interval at which queued messages are counted.
const COUNT: Duration = Duration::from_secs(5);

/// Maximum count of queued messages, to bound the cost of counting.
const MAX_COUNT: u32 = 10_000;

/// Maximum time that a stop waits for acknowledgements, within the limit of the shutdown, so that they are marked as sent.
const ACKNOWLEDGEMENT_GRACE: Duration = Duration::from_secs(8);

/// Relays the messages of `store` to `receiver` until `stopped` is true, and deletes them after `retention`.
pub async fn run<R: Receiver>(
    receiver: R,
    retention: Duration,
    store: Arc<Store>,
    clock: Clock,
    status: Arc<Status>,
    mut stopped: watch::Receiver<bool>,
) {
    let deleting = delete_sent(retention, Arc::clone(&store), clock.clone(), Arc::clone(&status));
    let mut relaying = Relaying {
        receiver: Arc::new(receiver),
        deliveries: Deliveries::default(),
        store,
        clock,
        status,
        lease: RelayLease::default(),
        lease_confirmed_at: None,
        next_count: Instant::now(),
        sweep: Sweep::default(),
        pass_starts: [None; 2],
        accounts: usize::MAX,
    };
    tokio::select! {
        biased;
        // An error means that the sender was dropped, which also stops the relay.
        _ = stopped.wait_for(|stopped| *stopped) => {}
        () = relaying.relay() => {}
        () = deleting => {}
    }
    relaying.finish().await;
}

/// Deletes messages `retention` after they were sent, while this process is the active relay. Never ends.
async fn delete_sent(retention: Duration, store: Arc<Store>, clock: Clock, status: Arc<Status>) {
    delete_expired("sent messages", async |limit| {
        if !status.is_active() {
            return Ok(0);
        }
        let deleted = store.delete_sent_messages(clock.earlier().minus(retention), limit).await;
        // At level debug, because the relay itself reports an unavailable database.
        Ok(deleted.inspect_err(|error| tracing::debug!(%error, "cannot delete sent messages")).unwrap_or_default())
    })
    .await;
}

/// The task that relays.
pub(super) struct Relaying<R> {
    pub receiver: Arc<R>,
    pub deliveries: Deliveries,
    pub store: Arc<Store>,
    clock: Clock,
    status: Arc<Status>,
    lease: RelayLease,
    /// When the lease was last confirmed. `None` if another process holds it.
    lease_confirmed_at: Option<Instant>,
    /// When to count queued messages again.
    next_count: Instant,
    pub sweep: Sweep,
    /// The positions after which the passes of the next sweep start. `None` unless this one is interrupted.
    pub pass_starts: [Option<(AccountId, MessageId)>; 2],
    /// Number of accounts with messages to deliver, as of the last sweep that had any.
    pub accounts: usize,
}

impl<R: Receiver> Relaying<R> {
    /// Waits for the deliveries in flight. Messages that are not acknowledged in time are sent again later.
    async fn finish(mut self) {
        let _ = timeout(ACKNOWLEDGEMENT_GRACE, self.deliveries.finish()).await;
        if let Err(why) = self.mark_sent().await {
            tracing::warn!(why, "cannot mark messages as sent, they will be sent again");
        }
        self.status.set_standby();
    }

    /// Never ends.
    async fn relay(&mut self) {
        let mut failures = 0;
        loop {
            self.sweep = Sweep::default();
            let outcome = self.round().await;
            let has_failed = mem::take(&mut self.deliveries.has_failed) || outcome.is_err();
            if has_failed {
                self.status.failures.increment();
            }
            let (wait, wakes_on_message) = match outcome {
                Ok(()) => {
                    failures = 0;
                    if !has_failed && self.sweep.ends_outage(self.deliveries.count()) {
                        self.deliveries.outage.end();
                    }
                    let wait = if self.sweep.has_more { Duration::ZERO } else { POLL };
                    (wait, !has_failed && self.sweep.may_repeat_on_message())
                }
                Err(why) => {
                    self.deliveries.outage.warn(&why, None);
                    let wait = delay_after(BACKOFF, failures);
                    failures += 1;
                    (wait, false)
                }
            };
            tokio::select! {
                biased;
                () = self.status.message_queued.notified(), if wakes_on_message => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Sweeps if this process holds the lease and the endpoint is not paused. Otherwise collects results.
    async fn round(&mut self) -> Result<(), String> {
        let is_active = self.has_lease().await?;
        if is_active {
            self.mark_sent().await?;
            self.count().await?;
        } else {
            self.deliveries.outage.end();
        }
        if is_active && !self.deliveries.delays.is_paused() {
            return self.sweep().await;
        }
        let _ = timeout(PATIENCE, self.deliveries.finish()).await;
        self.mark_sent().await
    }

    async fn has_lease(&mut self) -> Result<bool, String> {
        if self.lease_confirmed_at.is_some_and(|last| last.elapsed() < POLL) {
            return Ok(true);
        }
        let is_held = self.store.hold_relay_lease(&mut self.lease).await.map_err(database);
        if is_held != Ok(true) {
            self.lease_confirmed_at = None;
            self.status.set_standby();
            return is_held;
        }
        self.status.set_active();
        if self.lease_confirmed_at.replace(Instant::now()).is_none() {
            tracing::info!(server = %self.receiver, "relaying messages");
        }
        if let Some(ids) = self.store.take_retries().await.map_err(database)? {
            self.deliveries.delays.retry(&ids);
        }
        Ok(true)
    }

    /// Marks acknowledged messages as sent. On an error, they are marked before any other message is sent.
    async fn mark_sent(&mut self) -> Result<(), String> {
        let acknowledged = &mut self.deliveries.acknowledged;
        if acknowledged.is_empty() {
            return Ok(());
        }
        self.store.mark_messages_sent(acknowledged.clone(), self.clock.steady()).await.map_err(database)?;
        self.status.acknowledged(acknowledged.len(), self.clock.now());
        acknowledged.clear();
        self.sweep.has_acknowledged = true;
        Ok(())
    }

    async fn count(&mut self) -> Result<(), String> {
        if Instant::now() >= self.next_count {
            self.status.set_queued(self.store.count_unsent_messages(MAX_COUNT).await.map_err(database)?);
            self.next_count = Instant::now() + COUNT;
        }
        Ok(())
    }
}

fn database(error: impl std::fmt::Display) -> String {
    format!("database: {error}")
}
