//! The relay: takes messages that wait in the database to a stream of NATS JetStream, each at least once.
//!
//! A message is marked as sent only once the broker has acknowledged it, so whoever is killed in between, it is sent again;
//! the stream knows it by its id. Of all processes on a database one relays, by a lease that ends with it.

mod backoff;
mod broker;
mod retention;
mod status;
mod url;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::domain::{AccountId, Clock, MessageId};
use crate::store::{RelayLease, Store};
use backoff::{Backoff, Trouble};
use broker::Broker;
use retention::Cleaner;
pub use status::Status;
pub use url::RelayUrl;

/// How many messages are on their way to the broker at once: at most 256 of 40 kB each.
const BATCH: u32 = 256;

/// How often to look for messages that other processes took on, and for a lease that became free.
const POLL: Duration = Duration::from_secs(1);

/// How often messages that wait are counted, and how far.
const COUNT: Duration = Duration::from_secs(5);
const COUNTED: u32 = 10_000;

/// How long the end of the process waits for acknowledgements that are on their way.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// Where messages go, and for how long they are kept here afterwards.
#[derive(Clone, Debug)]
pub struct Options {
    pub url: RelayUrl,
    pub retention: Duration,
}

/// The relay's task, until this is stopped.
#[derive(Debug)]
pub struct Relay {
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
}

impl Relay {
    pub fn start(options: Options, store: Arc<Store>, clock: Clock, status: Arc<Status>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let cleaner = Cleaner {
            store: Arc::clone(&store),
            clock: clock.clone(),
            status: Arc::clone(&status),
            retention: options.retention,
        };
        let worker = Worker {
            url: options.url,
            store,
            clock,
            status,
            stopped: stopped.clone(),
            lease: RelayLease::default(),
            broker: None,
            acknowledged: Vec::new(),
            trouble: Trouble::default(),
            from: None,
            held: None,
            counted: None,
        };
        let running = tokio::spawn(async move {
            tokio::join!(worker.work(), cleaner.clean(stopped));
        });
        Self { stop, running }
    }

    /// Waits for what is on its way to be acknowledged and noted, and relays no more.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // Beyond it the process ends all the same: what was not noted is sent again.
        let _ = timeout(LAST_WAIT, self.running).await;
    }
}

struct Worker {
    url: RelayUrl,
    store: Arc<Store>,
    clock: Clock,
    status: Arc<Status>,
    stopped: watch::Receiver<bool>,
    lease: RelayLease,
    broker: Option<Broker>,
    /// What the broker has acknowledged, and the database does not know yet.
    acknowledged: Vec<(AccountId, MessageId)>,
    trouble: Trouble,
    /// After which message the next round begins, where the broker took none of a batch; else at the first that waits.
    from: Option<MessageId>,
    /// When it was last sure to have the lease.
    held: Option<Instant>,
    /// When messages that wait were last counted.
    counted: Option<Instant>,
}

impl Worker {
    async fn work(mut self) {
        let mut backoff = Backoff::default();
        while !self.is_stopped() {
            let outcome = self.round().await;
            if outcome.is_ok() {
                backoff = Backoff::default();
            }
            let (wait, is_woken) = match outcome {
                Ok(Round::Relayed) => {
                    self.trouble.is_over();
                    (POLL, true)
                }
                Ok(Round::NotMine) => {
                    self.trouble.is_over();
                    (POLL, false)
                }
                Ok(Round::Refused(why)) => {
                    self.status.failed();
                    self.trouble.tell(&why);
                    (POLL, false)
                }
                Err(why) => {
                    self.status.failed();
                    self.trouble.tell(&why);
                    (backoff.next(), false)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.status.woken(), if is_woken => {}
                () = stop_asked(self.stopped.clone()) => {}
            }
        }
        self.status.stands_by();
    }

    /// Relays all that waits, where this process is the one that does.
    async fn round(&mut self) -> std::result::Result<Round, String> {
        if !self.has_lease().await? {
            return Ok(Round::NotMine);
        }
        self.note().await?;
        self.count().await?;
        let mut after = self.from.take();
        let mut refused = None;
        loop {
            let batch = self.store.unsent_messages(after, BATCH).await.map_err(database)?;
            // A broker that is out of reach is noticed before there is something for it.
            let broker = match &mut self.broker {
                Some(broker) if broker.is_connected() => broker,
                lost => lost.insert(Broker::connect(&self.url, self.store.deployment()).await?),
            };
            let Some(last) = batch.last() else { break };
            after = Some(last.id);
            let published = broker.publish(&batch).await;
            let none = published.acknowledged.is_empty();
            self.acknowledged.extend(published.acknowledged);
            self.note().await?;
            if none {
                // Perhaps another one of the servers takes them, and if not, perhaps those that follow.
                self.broker = None;
                self.from = after;
                return Err(published.refused.unwrap_or_default());
            }
            // One that the broker refuses, for its size perhaps, does not hold up the others.
            refused = published.refused.or(refused);
            if batch.len() < BATCH as usize || self.is_stopped() || !self.has_lease().await? {
                break;
            }
            self.count().await?;
        }
        Ok(refused.map_or(Round::Relayed, Round::Refused))
    }

    async fn has_lease(&mut self) -> std::result::Result<bool, String> {
        if self.held.is_some_and(|last| last.elapsed() < POLL) {
            return Ok(true);
        }
        let held = self.store.hold_relay_lease(&mut self.lease).await;
        if let Ok(true) = held {
            self.status.relays();
            self.held = Some(Instant::now());
        } else {
            self.status.stands_by();
            (self.held, self.counted) = (None, None);
        }
        held.map_err(database)
    }

    /// Has the database know what was acknowledged. What it could not be told, it is told before anything else is sent.
    async fn note(&mut self) -> std::result::Result<(), String> {
        if self.acknowledged.is_empty() {
            return Ok(());
        }
        let sent_at = self.clock.steady();
        self.store.mark_messages_sent(self.acknowledged.clone(), sent_at).await.map_err(database)?;
        self.status.acknowledged(self.acknowledged.len(), self.clock.now());
        self.acknowledged.clear();
        Ok(())
    }

    async fn count(&mut self) -> std::result::Result<(), String> {
        if self.counted.is_none_or(|last| last.elapsed() >= COUNT) {
            self.status.counted(self.store.count_unsent_messages(COUNTED).await.map_err(database)?);
            self.counted = Some(Instant::now());
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }
}

/// How a round came to its end.
enum Round {
    Relayed,
    /// Some were, and others not: the last reason.
    Refused(String),
    /// Another process relays.
    NotMine,
}

fn database(error: impl std::fmt::Display) -> String {
    format!("the database: {error}")
}

async fn stop_asked(mut stopped: watch::Receiver<bool>) {
    // An error means that nobody can ask any more.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
