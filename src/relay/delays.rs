//! When the endpoint, accounts and messages are tried again after a failure. Kept in memory only.

use std::collections::HashMap;
use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::{AccountId, MessageId};
use crate::runtime::backoff::{Range, delay_after};

/// Range of pauses of an account. [`delay_after`] subtracts up to half, so the shortest is 1 s.
const PAUSE: Range = (Duration::from_secs(2), Duration::from_mins(5));

/// Pause of the endpoint. It never grows, because messages of accounts that have not failed wait for it, too. If the
/// endpoint is down, the pauses of all accounts grow.
const BRAKE: Duration = Duration::from_secs(1);

/// Head start of other accounts over those that are failing, after a pause of the endpoint.
const HEAD_START: Duration = Duration::from_secs(2);

/// Range of pauses that the endpoint may demand.
const DEMANDED: Range = (Duration::from_secs(1), Duration::from_hours(1));

/// Range of delays of a message that the endpoint rejected. The shortest is 1 min.
const DELAY: Range = (Duration::from_mins(2), Duration::from_hours(1));

/// Maximum number of delayed messages.
const CAPACITY: usize = 4_096;

/// Maximum number of delayed messages of an account.
const ACCOUNT_CAPACITY: usize = 256;

#[derive(Debug, Default)]
pub struct Delays {
    /// End of the last pause.
    paused_until: Option<Instant>,
    /// True if the endpoint may be the reason why accounts are paused.
    was_down: bool,
    /// An account whose message has failed since the last acknowledgement.
    failing: Option<AccountId>,
    /// Number of acknowledged messages.
    acknowledgements: u64,
    accounts: HashMap<AccountId, Account>,
}

/// An account with delayed messages.
#[derive(Debug, Default)]
struct Account {
    /// Number of pauses that grow.
    pauses: u32,
    paused_until: Option<Instant>,
    /// [`Delays::acknowledgements`] when the last pause began.
    acknowledgements: u64,
    /// The last message tried. The next turn begins after it, so that messages that have not failed come first.
    resume_after: Option<MessageId>,
    messages: HashMap<MessageId, Delay>,
    /// True if the last attempt failed.
    is_failing: bool,
}

#[derive(Debug)]
struct Delay {
    /// Why the message is delayed: [`PAUSE`] or [`DELAY`].
    range: Range,
    /// Attempts that failed for this reason.
    attempts: u32,
    until: Instant,
}

/// Messages that the endpoint acknowledged while another was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meanwhile {
    None,
    OfOthers,
    /// At least one is of the same account.
    OfAccount,
}

impl Delays {
    pub fn is_paused(&self) -> bool {
        is_future(self.paused_until)
    }

    /// Returns whether accounts that fail wait for the others, because a pause has just ended.
    pub fn is_head_start(&self) -> bool {
        is_future(self.paused_until.map(|until| until + HEAD_START))
    }

    /// Returns whether the endpoint has failed since the last acknowledgement.
    pub fn has_failed(&self) -> bool {
        self.failing.is_some()
    }

    pub fn is_account_paused(&self, account: AccountId) -> bool {
        self.accounts.get(&account).is_some_and(|account| is_future(account.paused_until))
    }

    pub fn is_delayed(&self, account: AccountId, id: MessageId) -> bool {
        let delay = self.accounts.get(&account).and_then(|account| account.messages.get(&id));
        delay.is_some_and(|delay| is_future(Some(delay.until)))
    }

    pub fn is_failing(&self, account: AccountId) -> bool {
        self.accounts.get(&account).is_some_and(|account| account.is_failing)
    }

    /// Returns the message after which the account's next turn begins.
    pub fn resume_after(&self, account: AccountId) -> Option<MessageId> {
        self.accounts.get(&account)?.resume_after
    }

    pub fn set_resume_after(&mut self, account: AccountId, id: Option<MessageId>) {
        if let Some(account) = self.accounts.get_mut(&account) {
            account.resume_after = id;
        }
    }

    /// Ends the delays of messages and the pauses of accounts, or everything: `retries` are ids of messages and numbers of
    /// accounts, or `all`.
    pub fn retry(&mut self, retries: &str) {
        for it in retries.split(' ') {
            match (MessageId::parse(it), it.parse().map(AccountId)) {
                (Some(id), _) => self.accounts.values_mut().for_each(|account| _ = account.messages.remove(&id)),
                (None, Ok(account)) => {
                    if let Some(account) = self.accounts.get_mut(&account) {
                        (account.paused_until, account.resume_after) = (None, None);
                    }
                }
                (None, Err(_)) => *self = Self::default(),
            }
        }
        self.accounts.retain(|_, account| !account.messages.is_empty());
    }

    pub fn acknowledged(&mut self, account: AccountId, id: MessageId) {
        self.failing = None;
        self.acknowledgements += 1;
        let Some(known) = self.accounts.get_mut(&account) else { return };
        let has_recovered = mem::take(&mut known.is_failing);
        known.messages.remove(&id);
        if known.messages.is_empty() {
            self.accounts.remove(&account);
        }
        if has_recovered && mem::take(&mut self.was_down) {
            self.accounts.values_mut().for_each(|account| account.paused_until = None);
        }
    }

    /// Pauses the endpoint for the time that it demands. Returns false if there is no space for the message.
    pub fn pause_demanded(&mut self, account: AccountId, id: MessageId, pause: Duration) -> bool {
        let pause = pause.clamp(DEMANDED.0, DEMANDED.1);
        self.failing = Some(account);
        self.pause(pause);
        self.delay(account, id, (pause, pause), false)
    }

    fn pause(&mut self, pause: Duration) {
        (self.was_down, self.paused_until) = (true, self.paused_until.max(Some(Instant::now() + pause)));
    }

    /// Delays a message after a failure of the endpoint, and pauses its account. If messages of two accounts fail in a row,
    /// pauses the endpoint. Returns false if there is no space.
    pub fn endpoint_failed(&mut self, account: AccountId, id: MessageId, acknowledged: Meanwhile) -> bool {
        let grows = acknowledged == Meanwhile::None;
        let has_space = self.delay(account, id, PAUSE, grows);
        if acknowledged < Meanwhile::OfAccount {
            self.pause_account(account, grows);
        }
        if grows {
            let is_second = self.failing.replace(account).is_some_and(|failing| failing != account);
            // Deliveries that run at the same time fail for the same reason.
            if is_second && !self.is_paused() {
                self.pause(BRAKE);
            }
        }
        has_space
    }

    /// Delays a message that the endpoint rejected. Returns false if there is no space.
    pub fn message_rejected(&mut self, account: AccountId, id: MessageId) -> bool {
        self.delay(account, id, DELAY, false)
    }

    /// Delays a message. If its account has too many, pauses the account. Returns false if there is no space for any.
    fn delay(&mut self, account: AccountId, id: MessageId, range: Range, grows: bool) -> bool {
        let now = Instant::now();
        if self.is_full() || self.is_account_full(account) {
            // Messages that were deleted are not tried again.
            self.accounts.retain(|_, account| {
                account.messages.retain(|_, delay| now < delay.until + DELAY.1);
                !account.messages.is_empty()
            });
        }
        let (is_full, is_account_full) = (self.is_full(), self.is_account_full(account));
        if is_full && !self.accounts.contains_key(&account) {
            return false;
        }
        let known = self.accounts.entry(account).or_default();
        known.is_failing = true;
        let delay = known.messages.get(&id);
        if delay.is_none() && (is_full || is_account_full) {
            self.pause_account(account, grows);
            return !is_full;
        }
        let attempts = delay.filter(|delay| delay.range == range).map_or(0, |delay| delay.attempts);
        let until = now + delay_after(range, attempts);
        known.messages.insert(id, Delay { range, attempts: attempts + 1, until });
        true
    }

    fn is_full(&self) -> bool {
        self.accounts.values().map(|account| account.messages.len()).sum::<usize>() >= CAPACITY
    }

    fn is_account_full(&self, account: AccountId) -> bool {
        self.accounts.get(&account).is_some_and(|account| account.messages.len() >= ACCOUNT_CAPACITY)
    }

    /// Pauses an account. Its pauses grow while no message of any account is acknowledged.
    fn pause_account(&mut self, account: AccountId, grows: bool) {
        let acknowledgements = self.acknowledgements;
        if let Some(account) = self.accounts.get_mut(&account)
            && !is_future(account.paused_until)
        {
            if !grows || account.acknowledgements != acknowledgements {
                (account.pauses, account.acknowledgements) = (0, acknowledgements);
            }
            let pause = delay_after(PAUSE, account.pauses);
            (account.pauses, account.paused_until) = (account.pauses + 1, Some(Instant::now() + pause));
        }
    }
}

fn is_future(time: Option<Instant>) -> bool {
    time.is_some_and(|time| Instant::now() < time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;
    use uuid::Uuid;

    const ADA: AccountId = AccountId(1);
    const BEN: AccountId = AccountId(2);
    const ID: MessageId = MessageId(Uuid::from_bytes([1; 16]));

    fn ids(count: usize) -> impl Iterator<Item = MessageId> {
        (0..count as u128).map(|number| MessageId(Uuid::from_u128(number)))
    }

    /// Advances until `holds` is false, and returns the time that took.
    async fn lasts(holds: impl Fn() -> bool) -> Duration {
        let began = Instant::now();
        while holds() {
            advance(Duration::from_millis(100)).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn endpoint_pauses_for_1_s_while_pauses_of_accounts_grow_to_5_min() {
        let mut delays = Delays::default();
        let mut pauses = Vec::new();
        for id in ids(12) {
            for account in [ADA, BEN] {
                delays.endpoint_failed(account, id, Meanwhile::None);
            }
            assert_eq!(lasts(|| delays.is_paused()).await, BRAKE);
            assert!(delays.is_head_start());
            pauses.push((BRAKE + lasts(|| delays.is_account_paused(BEN)).await).as_secs());
        }
        assert!((1..=2).contains(&pauses[0]) && (8..=16).contains(&pauses[3]), "{pauses:?}");
        assert!(pauses[9..].iter().all(|pause| (149..=301).contains(pause)), "{pauses:?}");
        for account in [ADA, BEN] {
            delays.endpoint_failed(account, ID, Meanwhile::None);
        }
        delays.acknowledged(AccountId(3), ID);
        assert!(!delays.has_failed() && delays.is_account_paused(ADA) && delays.is_account_paused(BEN));
        delays.acknowledged(ADA, ID);
        assert!(!delays.is_account_paused(ADA) && !delays.is_account_paused(BEN), "the endpoint is back");
        assert!(!delays.is_failing(ADA) && delays.is_failing(BEN));
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_of_an_account_grow_when_it_has_too_many_delays() {
        let mut delays = Delays::default();
        ids(ACCOUNT_CAPACITY).for_each(|id| assert!(delays.message_rejected(ADA, id)));
        let mut pauses = Vec::new();
        for _ in 0..4 {
            delays.endpoint_failed(ADA, ID, Meanwhile::None);
            pauses.push(lasts(|| delays.is_account_paused(ADA)).await.as_secs());
        }
        assert!((8..=16).contains(&pauses[3]), "{pauses:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_failing_account_pauses_alone() {
        let mut delays = Delays::default();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            ids(16).for_each(|id| assert!(delays.endpoint_failed(ADA, id, Meanwhile::None)));
            assert!(!delays.is_paused() && !delays.is_account_paused(BEN));
            pauses.push(lasts(|| delays.is_account_paused(ADA)).await.as_secs());
        }
        assert!((1..=2).contains(&pauses[0]) && (150..=300).contains(&pauses[9]), "{pauses:?}");
        // The endpoint accepts messages of others, at the same time or between.
        for acknowledged in [Meanwhile::OfOthers, Meanwhile::None, Meanwhile::None] {
            delays.endpoint_failed(ADA, ID, acknowledged);
            assert!(lasts(|| delays.is_account_paused(ADA)).await.as_secs() <= 2);
            delays.acknowledged(BEN, ID);
        }
        delays.endpoint_failed(ADA, ID, Meanwhile::OfAccount);
        assert!(!delays.is_account_paused(ADA) && delays.is_delayed(ADA, ID));
        delays.endpoint_failed(BEN, ID, Meanwhile::OfOthers);
        delays.acknowledged(ADA, ID);
        assert!(delays.is_account_paused(BEN), "the endpoint was not down");
    }

    #[tokio::test(start_paused = true)]
    async fn endpoint_may_demand_up_to_an_hour() {
        let mut delays = Delays::default();
        for (demanded, expected) in [(0, 1), (40, 40), (3_600, 3_600), (u64::MAX, 3_600)] {
            delays.pause_demanded(ADA, ID, Duration::from_secs(demanded));
            delays.pause_demanded(BEN, ID, Duration::ZERO);
            assert!(delays.is_failing(ADA) && delays.is_failing(BEN) && !delays.is_failing(AccountId(3)));
            assert!(lasts(|| delays.is_paused()).await.as_secs().abs_diff(expected) <= 1, "{demanded}");
            assert!(!delays.is_delayed(ADA, ID) && !delays.is_account_paused(ADA));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retry_ends_delays_of_messages_and_pauses_of_accounts() {
        let mut delays = Delays::default();
        for account in [ADA, BEN] {
            delays.endpoint_failed(account, ID, Meanwhile::OfOthers);
            delays.message_rejected(account, MessageId::MIN);
        }
        // A message of Ada's that waits only because her account is paused.
        delays.retry(&format!("{} {}", MessageId::MAX, ADA.0));
        assert!(!delays.is_account_paused(ADA) && delays.is_delayed(ADA, ID) && delays.is_account_paused(BEN));
        delays.set_resume_after(BEN, Some(ID));
        assert_eq!(delays.resume_after(BEN), Some(ID));
        delays.retry(&format!("{ID} {}", BEN.0));
        assert_eq!(delays.resume_after(BEN), None);
        assert!(
            !delays.is_account_paused(BEN) && !delays.is_delayed(BEN, ID) && delays.is_delayed(BEN, MessageId::MIN)
        );
        delays.retry("all");
        assert!(!delays.is_delayed(BEN, MessageId::MIN));
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_messages_are_delayed_alone_from_1_min_to_1_h() {
        let mut delays = Delays::default();
        let mut seconds = Vec::new();
        for _ in 0..8 {
            delays.message_rejected(ADA, ID);
            assert!(!delays.is_paused() && !delays.is_account_paused(ADA));
            seconds.push(lasts(|| delays.is_delayed(ADA, ID)).await.as_secs());
        }
        assert!((60..=120).contains(&seconds[0]) && (120..=240).contains(&seconds[1]), "{seconds:?}");
        assert!((1_800..=3_600).contains(&seconds[7]), "{seconds:?}");
        delays.endpoint_failed(ADA, ID, Meanwhile::None);
        assert!(lasts(|| delays.is_delayed(ADA, ID)).await.as_secs() <= 2, "another reason");
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_delays_of_an_account_pause_it_alone() {
        let mut delays = Delays::default();
        ids(ACCOUNT_CAPACITY).for_each(|id| assert!(delays.message_rejected(ADA, id)));
        assert!(!delays.is_account_paused(ADA));
        for _ in 0..3 {
            assert!(delays.message_rejected(ADA, ID));
            assert!(!delays.is_delayed(ADA, ID) && !delays.is_paused());
            assert!((1..=2).contains(&lasts(|| delays.is_account_paused(ADA)).await.as_secs()), "never grows");
        }
        // The delayed messages were deleted.
        advance(DELAY.1 * 2).await;
        delays.message_rejected(ADA, ID);
        assert!(delays.is_delayed(ADA, ID));
        assert_eq!(delays.accounts[&ADA].messages.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn full_list_never_pauses_the_endpoint() {
        let mut delays = Delays::default();
        for account in 0..CAPACITY as i64 {
            assert!(delays.message_rejected(AccountId(account), ID));
        }
        let other = AccountId(-1);
        assert!(!delays.message_rejected(other, ID) && !delays.endpoint_failed(other, ID, Meanwhile::OfOthers));
        assert!(!delays.message_rejected(ADA, MessageId::MIN));
        assert!(!delays.is_paused() && delays.is_account_paused(ADA) && !delays.is_account_paused(BEN));
        assert_eq!(delays.accounts.len(), CAPACITY);
        delays.acknowledged(ADA, ID);
        assert!(delays.message_rejected(other, ID));
    }
}
