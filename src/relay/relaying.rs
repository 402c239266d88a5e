//! The task that relays: rounds through the queued messages.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::broker::{Broker, Published, Stream};
use super::outage::Outage;
use super::{Status, retention, until_stopped};
use crate::domain::{AccountId, Message, MessageId};
use crate::runtime::backoff::Backoff;
use crate::runtime::clock::Clock;
use crate::store::{RelayLease, Store};

/// Precedes every message.
const START: (AccountId, MessageId) = (AccountId(0), MessageId::MIN);

/// Number of batches rejected as a whole before the relay tries another server and waits. Fewer would let the messages that
/// a broker never accepts delay others; more would load a broker that accepts none.
const REJECTED_BATCHES: usize = 16;

/// Interval of checks for messages queued by other processes, and for a free lease.
const POLL: Duration = Duration::from_secs(1);

/// Delays between two attempts to reach the broker.
const MIN_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Interval at which queued messages are counted.
const COUNT: Duration = Duration::from_secs(5);

/// Maximum count of queued messages, to bound the cost of counting.
const MAX_COUNT: u32 = 10_000;

/// The endpoint will never accept messages again, so the operator has to act.
const GONE: &str = "status 410 Gone";

/// Maximum time that a stop waits for acknowledgements, within the limit of the shutdown, so that they are marked as sent.
const ACKNOWLEDGEMENT_GRACE: Duration = Duration::from_secs(8);

/// Relays the messages of `store` to `broker` until `stopped` is true, and deletes them after `retention`.
pub async fn run<B: Broker>(
    broker: B,
    retention: Duration,
    store: Arc<Store>,
    clock: Clock,
    status: Arc<Status>,
    stopped: watch::Receiver<bool>,
) {
    let deleting = retention::run(retention, Arc::clone(&store), clock.clone(), Arc::clone(&status), stopped.clone());
    let relaying = Relaying {
        broker,
        store,
        clock,
        status,
        stopped,
        lease: RelayLease::default(),
        stream: None,
        has_connected: false,
        acknowledged: Vec::new(),
        outage: Outage::default(),
        resume_after: None,
        has_more: false,
        lease_confirmed_at: None,
        next_count: Instant::now(),
    };
    tokio::join!(relaying.run(), deleting);
}

/// The task that relays.
struct Relaying<B: Broker> {
    broker: B,
    store: Arc<Store>,
    clock: Clock,
    status: Arc<Status>,
    stopped: watch::Receiver<bool>,
    lease: RelayLease,
    stream: Option<B::Stream>,
    /// Set if a connection was opened in this round.
    has_connected: bool,
    /// Messages acknowledged by the broker, but not yet marked as sent in the database.
    acknowledged: Vec<(AccountId, MessageId)>,
    outage: Outage,
    /// Where the next round starts after an interruption. `None` to start with the first account.
    resume_after: Option<(AccountId, MessageId)>,
    /// Set if the last round left messages that may be sent now.
    has_more: bool,
    /// When the lease was last confirmed. `None` if another process holds it.
    lease_confirmed_at: Option<Instant>,
    /// When to count queued messages again.
    next_count: Instant,
}

impl<B: Broker> Relaying<B> {
    async fn run(mut self) {
        let mut backoff = Backoff::new(MIN_DELAY, MAX_DELAY);
        while !self.is_stopped() {
            let outcome = self.round().await;
            // Each round reads all delayed messages, so not for every new one if they are many.
            let wakes_on_message =
                matches!(outcome, Ok(Round::Relayed | Round::InFlight | Round::Delayed { batches: 1 }));
            // A broker may accept connections and close them.
            let is_stable = outcome.is_ok() && !mem::take(&mut self.has_connected);
            if is_stable {
                backoff = Backoff::new(MIN_DELAY, MAX_DELAY);
            }
            let wait = match outcome {
                Ok(_) if mem::take(&mut self.has_more) => Duration::ZERO,
                Ok(_) => POLL,
                Err(_) => backoff.next_delay(),
            };
            match outcome {
                Ok(Round::Delayed { .. } | Round::InFlight | Round::Paused) => {}
                Ok(Round::Relayed | Round::Standby) if !is_stable => {}
                Ok(Round::Relayed | Round::Standby) => {
                    if self.outage.end() {
                        tracing::info!("relaying messages again");
                    }
                }
                Ok(Round::Rejected(why)) | Err(why) => {
                    self.status.failed();
                    self.warn(&why, None);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.status.next_message(), if wakes_on_message => {}
                () = until_stopped(self.stopped.clone()) => {}
            }
        }
        self.finish().await;
        self.status.set_standby();
    }

    /// Waits for the messages in flight. Those that are not acknowledged in time are sent again later.
    async fn finish(&mut self) {
        let mut published = Published::default();
        if let Some(stream) = &mut self.stream {
            let _ = timeout(ACKNOWLEDGEMENT_GRACE, stream.finish(&mut published)).await;
        }
        self.acknowledged.extend(published.acknowledged);
        if let Err(why) = self.mark_sent().await {
            tracing::warn!(why, "cannot mark messages as sent, they will be sent again");
        }
    }

    /// Relays all queued messages if this process holds the lease.
    async fn round(&mut self) -> Result<Round, String> {
        if !self.has_lease().await? {
            self.collect().await?;
            return Ok(Round::Standby);
        }
        self.mark_sent().await?;
        self.count().await?;
        // Connects even if there are no messages, to detect an unreachable broker early.
        self.connect().await?;
        if self.is_paused() {
            return Ok(self.collect().await?.map_or(Round::Paused, Round::Rejected));
        }
        // Messages before it wait, too.
        self.has_more = self.resume_after.is_some();
        let (mut after, mut rejected, mut has_delayed) =
            (self.resume_after.take().unwrap_or(START), None, self.has_more);
        let (mut batches, mut rejected_batches, mut has_relayed, mut has_in_flight) = (0, 0, false, false);
        loop {
            let batch = self.store.unsent_messages(after, B::Stream::BATCH).await.map_err(database)?;
            let published = self.publish(&batch).await;
            after = published.next.or(batch.last().map(|last| (last.account, last.id))).unwrap_or(after);
            let none = published.acknowledged.is_empty() && published.rejection.is_some();
            batches += usize::from(!batch.is_empty());
            rejected_batches += usize::from(none);
            has_relayed |= !published.acknowledged.is_empty();
            has_delayed |= published.has_delayed;
            has_in_flight |= published.has_in_flight;
            self.has_more |= published.has_more;
            self.acknowledged.extend(published.acknowledged);
            self.mark_sent().await?;
            let is_broken = none && published.has_unanswered || rejected_batches == REJECTED_BATCHES;
            if is_broken {
                // Tries another server.
                self.finish().await;
                self.stream = None;
            }
            if is_broken || self.is_paused() {
                // Continues with the next messages in case these are the problem.
                self.resume_after = Some(after);
                return Err(published.rejection.unwrap_or_default());
            }
            // A message that the broker rejects, for instance because of its size, does not block the others.
            rejected = published.rejection.or(rejected);
            if batch.len() < B::Stream::BATCH as usize || self.is_stopped() || !self.has_lease().await? {
                break;
            }
            self.count().await?;
            self.connect().await?;
        }
        match rejected {
            None if has_delayed => Ok(Round::Delayed { batches }),
            None if has_in_flight && !has_relayed => Ok(Round::InFlight),
            None => Ok(Round::Relayed),
            Some(why) if has_relayed || B::Stream::LEAVES_IN_FLIGHT => Ok(Round::Rejected(why)),
            Some(why) => Err(why),
        }
    }

    /// Connects if there is no stream. Fails if the broker has closed the connection.
    async fn connect(&mut self) -> Result<(), String> {
        if let Some(mut stream) = self.stream.take() {
            if !stream.is_connected().await {
                return Err(format!("{} closed the connection", self.broker));
            }
            self.stream = Some(stream);
            return Ok(());
        }
        self.stream = Some(self.broker.connect(self.store.deployment()).await?);
        self.has_connected = true;
        if !self.outage.has_begun() {
            tracing::info!(server = %self.broker, "relaying messages");
        }
        Ok(())
    }

    /// Marks messages in flight that have been acknowledged. Returns why the last one was rejected.
    async fn collect(&mut self) -> Result<Option<String>, String> {
        let published = self.publish(&[]).await;
        self.acknowledged.extend(published.acknowledged);
        self.mark_sent().await?;
        Ok(published.rejection)
    }

    /// Publishes messages. Soon after a stop, no longer waits for their acknowledgements.
    async fn publish(&mut self, batch: &[Message]) -> Published {
        let (mut published, stopped) = (Published::default(), self.stopped.clone());
        if let Some(stream) = &mut self.stream {
            tokio::select! {
                biased;
                () = stream.publish(batch, &mut published) => {}
                () = async {
                    until_stopped(stopped).await;
                    // Those in flight are waited for at the end.
                    if !B::Stream::LEAVES_IN_FLIGHT {
                        sleep(ACKNOWLEDGEMENT_GRACE).await;
                    }
                } => {}
            }
        }
        for (why, id) in &published.rejections {
            self.warn(why, Some(*id));
        }
        published
    }

    /// Logs why a message, or the first of several, was rejected.
    fn warn(&mut self, why: &str, id: Option<MessageId>) {
        let id = id.map(tracing::field::display);
        match self.outage.is_warning_due(why) {
            true if why == GONE => tracing::error!(id, why, "the endpoint is gone, messages stay queued; retrying"),
            true => tracing::warn!(id, why, "cannot relay messages, they stay queued; retrying"),
            false => tracing::debug!(id, why, "cannot relay messages, retrying"),
        }
    }

    async fn has_lease(&mut self) -> Result<bool, String> {
        if self.lease_confirmed_at.is_some_and(|last| last.elapsed() < POLL) {
            return Ok(true);
        }
        let is_held = self.store.hold_relay_lease(&mut self.lease).await;
        if let Ok(true) = is_held {
            self.status.set_active();
            self.lease_confirmed_at = Some(Instant::now());
            if let Some(stream) = &mut self.stream
                && let Some(ids) = self.store.take_retries().await.map_err(database)?
            {
                stream.retry(&ids);
            }
        } else {
            self.status.set_standby();
            (self.lease_confirmed_at, self.next_count) = (None, Instant::now());
        }
        is_held.map_err(database)
    }

    /// Marks acknowledged messages as sent. On an error, they are marked before any other message is sent.
    async fn mark_sent(&mut self) -> Result<(), String> {
        if self.acknowledged.is_empty() {
            return Ok(());
        }
        let sent_at = self.clock.steady();
        self.store.mark_messages_sent(self.acknowledged.clone(), sent_at).await.map_err(database)?;
        self.status.acknowledged(self.acknowledged.len(), self.clock.now());
        self.acknowledged.clear();
        Ok(())
    }

    async fn count(&mut self) -> Result<(), String> {
        if Instant::now() >= self.next_count {
            self.status.set_queued(self.store.count_unsent_messages(MAX_COUNT).await.map_err(database)?);
            self.next_count = Instant::now() + COUNT;
        }
        Ok(())
    }

    fn is_paused(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::is_paused)
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }
}

/// Result of a round.
enum Round {
    Relayed,
    /// Messages that were rejected earlier are not yet tried again. `batches` is the number of batches read.
    Delayed {
        batches: usize,
    },
    /// No message was acknowledged or rejected yet.
    InFlight,
    /// The broker must not get messages now.
    Paused,
    /// The broker accepted some of the messages and rejected others, the last one for this reason.
    Rejected(String),
    /// Another process is the active relay.
    Standby,
}

fn database(error: impl std::fmt::Display) -> String {
    format!("database: {error}")
}
