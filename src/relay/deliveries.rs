//! Deliveries in flight, and the results of those that have ended.

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::delays::{Delays, Meanwhile};
use super::outage::Outage;
use crate::domain::{AccountId, Message, MessageId};

/// Time that other messages wait for a response that takes longer.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// Maximum number of slow accounts to remember.
const SLOW: usize = 4_096;

/// Delivers single messages: to a web server, or in the simulation of the tests. Displayed without secrets.
pub trait Receiver: Display + Send + Sync + 'static {
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

#[derive(Default)]
pub struct Deliveries {
    pub delays: Delays,
    pub outage: Outage,
    /// Messages acknowledged by the receiver, but not yet marked as sent in the database.
    pub acknowledged: Vec<(AccountId, MessageId)>,
    /// Set by a failure.
    pub has_failed: bool,
    /// Set by a failure if [`Delays`] had no space for the message.
    pub has_undelayed: bool,
    /// True if the last response took longer than [`PATIENCE`].
    pub is_slow: bool,
    /// Accounts whose last response took longer.
    slow: HashSet<AccountId>,
    in_flight: Vec<InFlight>,
    running: JoinSet<(MessageId, Result<(), Failure>, Duration)>,
}

struct InFlight {
    account: AccountId,
    id: MessageId,
    acknowledged: Meanwhile,
}

impl Deliveries {
    pub fn count(&self) -> usize {
        self.in_flight.len()
    }

    pub fn count_of(&self, account: AccountId) -> usize {
        self.in_flight.iter().filter(|delivery| delivery.account == account).count()
    }

    /// Returns whether a message is in flight, or acknowledged and not yet marked as sent.
    pub fn has(&self, id: MessageId) -> bool {
        self.in_flight.iter().any(|delivery| delivery.id == id)
            || self.acknowledged.iter().any(|(_, known)| *known == id)
    }

    /// Returns whether the messages of other accounts come first, because the last one of this account failed or was slow.
    pub fn is_deferred(&self, account: AccountId) -> bool {
        self.delays.is_failing(account) || self.slow.contains(&account)
    }

    pub fn start(&mut self, receiver: Arc<impl Receiver>, message: Message) {
        let (account, id) = (message.account, message.id);
        self.in_flight.push(InFlight { account, id, acknowledged: Meanwhile::None });
        let began = Instant::now();
        self.running.spawn(async move { (id, receiver.deliver(&message).await, began.elapsed()) });
    }

    /// Waits for the next result, and records it. Returns at once if nothing is in flight.
    pub async fn record_next(&mut self) {
        let Some(ended) = self.running.join_next().await else { return };
        let (id, result, took) = ended.expect("a delivery does not panic");
        let position = self.in_flight.iter().position(|delivery| delivery.id == id).expect("it was in flight");
        let InFlight { account, acknowledged, .. } = self.in_flight.swap_remove(position);
        self.is_slow = took > PATIENCE;
        self.slow.remove(&account);
        if self.is_slow && self.slow.len() < SLOW {
            self.slow.insert(account);
        }
        let (why, has_space) = match result {
            Ok(()) => return self.acknowledge(account, id),
            Err(Failure::Endpoint(why, Some(pause))) => (why, self.delays.pause_demanded(account, id, pause)),
            Err(Failure::Endpoint(why, None)) => (why, self.delays.endpoint_failed(account, id, acknowledged)),
            Err(Failure::Message(why)) => (why, self.delays.message_rejected(account, id)),
        };
        self.has_failed = true;
        self.has_undelayed |= !has_space;
        self.outage.warn(&why, Some(id));
    }

    fn acknowledge(&mut self, account: AccountId, id: MessageId) {
        self.delays.acknowledged(account, id);
        self.acknowledged.push((account, id));
        for other in &mut self.in_flight {
            let acknowledged = if other.account == account { Meanwhile::OfAccount } else { Meanwhile::OfOthers };
            other.acknowledged = other.acknowledged.max(acknowledged);
        }
    }

    /// Waits for all results, and records them.
    pub async fn finish(&mut self) {
        while !self.running.is_empty() {
            self.record_next().await;
        }
    }
}
