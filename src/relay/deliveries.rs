//! Deliveries in flight, and the results of those that have ended.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::delays::{Delays, Meanwhile};
use super::outage::Outage;
use crate::domain::{AccountId, Message, MessageId};

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
    in_flight: Vec<InFlight>,
    running: JoinSet<(MessageId, Result<(), Failure>)>,
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

    pub fn start(&mut self, receiver: Arc<impl Receiver>, message: Message) {
        let (account, id) = (message.account, message.id);
        self.in_flight.push(InFlight { account, id, acknowledged: Meanwhile::None });
        self.running.spawn(async move { (id, receiver.deliver(&message).await) });
    }

    /// Waits for the next result, and records it. Returns at once if nothing is in flight.
    pub async fn record_next(&mut self) {
        let Some(ended) = self.running.join_next().await else { return };
        let (id, result) = ended.expect("a delivery does not panic");
        let position = self.in_flight.iter().position(|delivery| delivery.id == id).expect("it was in flight");
        let InFlight { account, acknowledged, .. } = self.in_flight.swap_remove(position);
        let (why, has_space) = match result {
            Ok(()) => return self.acknowledge(account, id),
            Err(Failure::Endpoint(why, Some(pause))) => {
                self.delays.pause_demanded(pause);
                (why, true)
            }
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
