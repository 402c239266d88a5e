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

#[cfg(test)]
pub mod tests {
    use std::fmt;

    use tokio::time::sleep;
    use uuid::Uuid;

    use super::*;
    use crate::domain::{MessageText, Timestamp};

    pub const ADA: AccountId = AccountId(1);
    pub const BEN: AccountId = AccountId(2);

    /// Does what the text of a message says, after as many milliseconds: `200 acknowledge`.
    pub struct Scripted;

    impl fmt::Display for Scripted {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a test")
        }
    }

    impl Receiver for Scripted {
        async fn deliver(&self, message: &Message) -> Result<(), Failure> {
            let (milliseconds, outcome) = message.text.as_str().split_once(' ').unwrap();
            sleep(Duration::from_millis(milliseconds.parse().unwrap())).await;
            match outcome {
                "acknowledge" => Ok(()),
                "reject" => Err(Failure::Message("of the message".into())),
                _ => Err(Failure::Endpoint("of the endpoint".into(), None)),
            }
        }
    }

    const fn id(number: u128) -> MessageId {
        MessageId(Uuid::from_u128(number))
    }

    /// Starts a delivery for each account and text. The ids of the messages follow the number of those in flight.
    pub fn start(deliveries: &mut Deliveries, scripts: &[(AccountId, &str)]) {
        for (account, text) in scripts {
            let text = MessageText::parse((*text).into()).unwrap();
            let (id, created_at) = (id(deliveries.count() as u128 + 1), Timestamp::from_milliseconds(0));
            deliveries.start(Arc::new(Scripted), Message { id, account: *account, text, created_at });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn message_is_known_from_its_start_until_it_is_marked_as_sent() {
        let mut deliveries = Deliveries::default();
        start(&mut deliveries, &[(ADA, "1 acknowledge"), (ADA, "2 reject"), (BEN, "3 acknowledge")]);
        assert_eq!([ADA, BEN].map(|account| deliveries.count_of(account)), [2, 1]);
        assert_eq!([1, 2, 3, 4].map(|number| deliveries.has(id(number))), [true, true, true, false]);

        deliveries.finish().await;

        assert_eq!([1, 2, 3, 4].map(|number| deliveries.has(id(number))), [true, false, true, false]);
        assert!(deliveries.has_failed && !deliveries.has_undelayed && deliveries.count() == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn failure_counts_what_was_acknowledged_meanwhile() {
        for (other, is_paused) in [(ADA, false), (BEN, true)] {
            let mut deliveries = Deliveries::default();
            start(&mut deliveries, &[(other, "1 acknowledge"), (ADA, "2 fail")]);
            deliveries.finish().await;
            assert_eq!(deliveries.delays.is_account_paused(ADA), is_paused);
            assert!(!deliveries.delays.has_failed(), "the endpoint works");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn account_is_deferred_after_a_failure_or_a_slow_response() {
        let mut deliveries = Deliveries::default();
        let (quick, slow) = ("200 acknowledge", "201 acknowledge");
        for (text, is_deferred) in [(quick, false), ("1 reject", true), (slow, true), (quick, false)] {
            start(&mut deliveries, &[(ADA, text)]);
            deliveries.record_next().await;
            assert_eq!((deliveries.is_deferred(ADA), deliveries.is_slow), (is_deferred, text == slow), "{text}");
            assert!(!deliveries.is_deferred(BEN));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failure_without_space_for_a_delay_is_remembered() {
        let mut deliveries = Deliveries::default();
        let mut others = (1..).map(|number| AccountId(-number));
        while deliveries.delays.message_rejected(others.next().unwrap(), id(1)) {}
        for account in [ADA, AccountId(-1)] {
            start(&mut deliveries, &[(account, "1 reject")]);
            deliveries.finish().await;
            assert!(deliveries.has_undelayed, "{account:?}");
        }
    }
}
