//! Deliveries in flight, and the accounts whose turn it is.
//!
//! A sweep through the queued messages gives each account a turn. A turn that takes too long is over, and the next sweep
//! continues it, so that no account keeps others waiting.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::broker::{Published, Stream};
use super::delays::{Delays, Meanwhile};
use crate::domain::{AccountId, Message, MessageId};

/// Number of deliveries that run at once.
const AT_ONCE: usize = 16;

/// Number of deliveries of one account that run at once while others have messages to deliver, and after a failure.
const AT_ONCE_OF_ACCOUNT: usize = AT_ONCE / 2;
const AT_ONCE_OF_FAILING: usize = 1;

/// Maximum time of a turn, and of one while no other account has messages to deliver.
const TURN: Duration = Duration::from_millis(10);
const TURN_ALONE: Duration = Duration::from_secs(1);

/// Time that other messages wait for a response that takes longer.
const PATIENCE: Duration = Duration::from_millis(200);

/// Time to wait after a sweep with failures for which [`Delays`] had no space, because the next one repeats them.
const BRAKE: Duration = Duration::from_secs(1);

/// Delivers single messages: to a web server, or in the simulation of the tests.
pub trait Receiver: Send + Sync + 'static {
    fn deliver(&self, message: &Message) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Why a message was not acknowledged, for the log.
#[derive(Debug)]
pub enum Failure {
    /// The endpoint failed, or demands a pause.
    Endpoint(String, Option<Duration>),
    /// The endpoint rejected this message.
    Message(String),
}

pub struct Deliveries<R> {
    receiver: Arc<R>,
    delays: Arc<Mutex<Delays>>,
    /// The accounts of the messages in flight.
    accounts: HashMap<AccountId, InFlight>,
    running: JoinSet<(Delivery, Result<(), Failure>)>,
    /// When the last acknowledgement arrived.
    acknowledged_at: Option<Instant>,
    sweep: Sweep,
    /// `None` between sweeps.
    turn: Option<Turn>,
    /// The only account with messages to deliver, as of the last sweep that had any.
    alone: Option<AccountId>,
}

/// A message in flight.
struct Delivery {
    account: AccountId,
    id: MessageId,
    began: Instant,
}

#[derive(Default)]
struct InFlight {
    messages: Vec<MessageId>,
    acknowledged_at: Option<Instant>,
}

#[derive(Default)]
struct Sweep {
    /// Number of accounts with messages to deliver, and the last of them.
    accounts: usize,
    last: Option<AccountId>,
    has_started: bool,
    /// Messages were left for the next sweep.
    has_more: bool,
    has_undelayed: bool,
}

struct Turn {
    account: AccountId,
    ends: Instant,
    resume_after: Option<MessageId>,
    /// The last message that was started.
    last: Option<MessageId>,
    started: usize,
    /// Number of messages skipped because they are delayed.
    delayed: usize,
    has_messages: bool,
    is_over: bool,
}

impl<R: Receiver> Deliveries<R> {
    pub fn new(receiver: Arc<R>, delays: Arc<Mutex<Delays>>) -> Self {
        let (accounts, running, acknowledged_at, sweep) = Default::default();
        Self { receiver, delays, accounts, running, acknowledged_at, sweep, turn: None, alone: None }
    }
}

impl<R: Receiver> Stream for Deliveries<R> {
    /// Takes at most 22 s, so that the relay confirms its lease in time.
    const BATCH: u32 = 2 * AT_ONCE as u32;

    const LEAVES_IN_FLIGHT: bool = true;

    async fn is_connected(&mut self) -> bool {
        true
    }

    fn is_paused(&self) -> bool {
        self.delays.lock().is_paused()
    }

    fn retry(&mut self, ids: &str) {
        self.delays.lock().retry(ids);
    }

    async fn publish(&mut self, messages: &[Message], published: &mut Published) {
        for message in messages {
            let (account, id) = (message.account, message.id);
            if self.turn.as_ref().is_none_or(|turn| turn.account != account) {
                self.begin_turn(account);
            }
            if self.is_paused() {
                let is_over = self.turn.as_mut().is_some_and(|turn| {
                    turn.is_over |= turn.last.is_some();
                    turn.is_over
                });
                published.next = Some((account, if is_over { MessageId::MAX } else { id.predecessor() }));
                return;
            }
            if self.may_start(account, id, published).await {
                self.start(message.clone());
            }
        }
        if let Some(Turn { account, is_over, resume_after, .. }) = self.turn {
            let skipped = if is_over { Some(MessageId::MAX) } else { resume_after };
            let last = messages.last().map(|last| last.id);
            published.next = skipped.filter(|_| skipped > last).map(|id| (account, id));
        }
        if messages.len() < Self::BATCH as usize {
            self.end_sweep(published).await;
        }
        published.has_in_flight = !self.running.is_empty();
    }

    async fn finish(&mut self, published: &mut Published) {
        while !self.running.is_empty() {
            self.record_next(published).await;
        }
    }
}

impl<R: Receiver> Deliveries<R> {
    fn begin_turn(&mut self, account: AccountId) {
        self.end_turn();
        let delays = self.delays.lock();
        self.turn = Some(Turn {
            account,
            ends: Instant::now() + if self.alone == Some(account) { TURN_ALONE } else { TURN },
            resume_after: delays.resume_after(account),
            last: None,
            started: 0,
            delayed: 0,
            has_messages: false,
            is_over: delays.is_account_paused(account),
        });
    }

    fn end_turn(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        let mut delays = self.delays.lock();
        if turn.is_over {
            if turn.last.is_some() {
                delays.set_resume_after(turn.account, turn.last);
            }
        } else {
            // The next turn begins with the oldest message.
            self.sweep.has_more |= turn.resume_after.is_some();
            delays.set_resume_after(turn.account, None);
            if !turn.has_messages && turn.delayed >= Self::BATCH as usize {
                delays.rest(turn.account);
            }
        }
    }

    async fn end_sweep(&mut self, published: &mut Published) {
        self.end_turn();
        let Sweep { accounts, last, has_started, has_more, has_undelayed } = std::mem::take(&mut self.sweep);
        if accounts > 0 {
            self.alone = last.filter(|_| accounts == 1);
        }
        published.has_more = has_more;
        if has_undelayed {
            sleep(BRAKE).await;
        }
        if !has_more {
            let _ = timeout(PATIENCE, self.finish(published)).await;
        } else if !has_started {
            let _ = timeout(PATIENCE, self.record_next(published)).await;
        }
    }

    /// Waits for a free place. Returns false if the message waits for a later sweep.
    async fn may_start(&mut self, account: AccountId, id: MessageId, published: &mut Published) -> bool {
        let Some(mut turn) = self.turn.take() else { return false };
        let may_start = self.is_due(&mut turn, id, published) && self.has_place(&mut turn, published).await;
        // The account or the endpoint may have been paused meanwhile.
        let is_paused = self.delays.lock().is_account_paused(account);
        turn.is_over |= is_paused;
        published.has_delayed |= is_paused;
        let may_start = may_start && !is_paused && !self.is_paused();
        if may_start {
            (turn.last, turn.started) = (Some(id), turn.started + 1);
        }
        self.turn = Some(turn);
        may_start
    }

    /// Returns whether a message is neither in flight nor delayed, and the turn has reached it.
    fn is_due(&mut self, turn: &mut Turn, id: MessageId, published: &mut Published) -> bool {
        let is_in_flight = self.accounts.get(&turn.account).is_some_and(|account| account.messages.contains(&id));
        let is_acknowledged = published.acknowledged.iter().any(|(_, acknowledged)| *acknowledged == id);
        if turn.is_over || turn.resume_after >= Some(id) || is_in_flight || is_acknowledged {
            return false;
        }
        let is_delayed = self.delays.lock().is_delayed(turn.account, id);
        turn.delayed += usize::from(is_delayed);
        published.has_delayed |= is_delayed;
        !is_delayed
    }

    /// Waits for a place. Returns false if the turn is over before.
    async fn has_place(&mut self, turn: &mut Turn, published: &mut Published) -> bool {
        if !std::mem::replace(&mut turn.has_messages, true) {
            (self.sweep.accounts, self.sweep.last) = (self.sweep.accounts + 1, Some(turn.account));
        }
        let most = match self.delays.lock().is_failing(turn.account) {
            _ if self.alone == Some(turn.account) => AT_ONCE,
            true => AT_ONCE_OF_FAILING,
            false => AT_ONCE_OF_ACCOUNT,
        };
        let is_full = |accounts: &HashMap<AccountId, InFlight>| {
            accounts.get(&turn.account).is_some_and(|account| account.messages.len() >= most)
        };
        let mut is_over = turn.started >= AT_ONCE_OF_ACCOUNT && Instant::now() >= turn.ends;
        while !is_over && is_full(&self.accounts) {
            is_over = turn.last.is_none() || timeout_at(turn.ends, self.record_next(published)).await.is_err();
        }
        while !is_over && self.running.len() >= AT_ONCE {
            self.record_next(published).await;
        }
        turn.is_over = is_over;
        self.sweep.has_more |= is_over;
        !is_over
    }

    fn start(&mut self, message: Message) {
        let delivery = Delivery { account: message.account, id: message.id, began: Instant::now() };
        self.accounts.entry(message.account).or_default().messages.push(message.id);
        self.sweep.has_started = true;
        let receiver = Arc::clone(&self.receiver);
        self.running.spawn(async move { (delivery, receiver.deliver(&message).await) });
    }

    /// Waits for the next response, and records it.
    async fn record_next(&mut self, published: &mut Published) {
        let Some(ended) = self.running.join_next().await else { return };
        let (Delivery { account, id, began }, result) = ended.expect("a delivery does not panic");
        let in_flight = self.accounts.entry(account).or_default();
        in_flight.messages.retain(|other| *other != id);
        let acknowledged = if in_flight.acknowledged_at > Some(began) {
            Meanwhile::OfAccount
        } else if self.acknowledged_at > Some(began) {
            Meanwhile::OfOthers
        } else {
            Meanwhile::None
        };
        let has_space = match result {
            Ok(()) => {
                self.delays.lock().acknowledged(account, id);
                self.acknowledged_at = Some(Instant::now());
                in_flight.acknowledged_at = self.acknowledged_at;
                published.acknowledged.push((account, id));
                true
            }
            Err(Failure::Endpoint(why, Some(pause))) => {
                self.delays.lock().pause_demanded(pause);
                published.reject(id, why);
                true
            }
            Err(Failure::Endpoint(why, None)) => {
                published.reject(id, why);
                self.delays.lock().endpoint_failed(account, id, acknowledged)
            }
            Err(Failure::Message(why)) => {
                published.reject(id, why);
                self.delays.lock().message_rejected(account, id)
            }
        };
        if in_flight.messages.is_empty() {
            self.accounts.remove(&account);
        }
        self.sweep.has_undelayed |= !has_space;
    }
}
