//! A turn of an account in a sweep: how many of its deliveries run at once, and until when.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::Relaying;
use crate::domain::{AccountId, MessageId};
use crate::relay::deliveries::{PATIENCE, Receiver};

/// Number of deliveries that run at once.
pub const AT_ONCE: usize = 16;

/// Places kept for accounts that are not deferred and have fewer deliveries in flight.
const KEPT: usize = 2;

/// Number of deliveries of one account that run at once while others have messages to deliver, and after a failure.
const AT_ONCE_OF_ACCOUNT: usize = AT_ONCE / 2;
const AT_ONCE_OF_FAILING: usize = 1;

/// Maximum time of a turn, and of one while no other account has messages to deliver.
const TURN: Duration = Duration::from_millis(10);
const TURN_ALONE: Duration = Duration::from_secs(1);

pub struct Turn {
    pub account: AccountId,
    /// True in the second pass.
    is_second: bool,
    ends: Instant,
    /// Messages up to this one had their turn in an earlier sweep.
    pub resume_after: Option<MessageId>,
    /// The last message that was started.
    pub last: Option<MessageId>,
    pub started: usize,
    pub is_over: bool,
}

impl<R: Receiver> Relaying<R> {
    pub(super) fn begin_turn(&mut self, account: AccountId, is_second: bool) -> Turn {
        let is_over = self.deliveries.delays.is_account_paused(account);
        if is_over {
            self.sweep.has_delayed = true;
            self.sweep.count(account);
        }
        Turn {
            account,
            is_second,
            ends: Instant::now() + if self.accounts.max(self.sweep.accounts) <= 1 { TURN_ALONE } else { TURN },
            resume_after: self.deliveries.delays.resume_after(account),
            last: None,
            started: 0,
            is_over,
        }
    }

    pub(super) fn end_turn(&mut self, turn: &Turn) {
        let delays = &mut self.deliveries.delays;
        if turn.is_over {
            return delays.set_resume_after(turn.account, turn.last.or(turn.resume_after));
        }
        // The next turn begins with the oldest message.
        self.sweep.has_more |= turn.resume_after.is_some();
        delays.set_resume_after(turn.account, None);
    }

    /// Waits until a message may be delivered. Returns false if it waits for a later sweep.
    pub(super) async fn may_start(&mut self, turn: &mut Turn, id: MessageId) -> bool {
        if turn.is_over || Some(id) <= turn.resume_after || self.deliveries.has(id) {
            return false;
        }
        if self.deliveries.delays.is_delayed(turn.account, id) {
            self.sweep.has_delayed = true;
            return false;
        }
        if !turn.is_second && self.deliveries.is_deferred(turn.account) {
            (turn.is_over, self.sweep.has_deferred) = (true, true);
            return false;
        }
        self.sweep.count(turn.account);
        turn.is_over = !self.has_place(turn).await;
        self.sweep.has_more |= turn.is_over;
        // The account or the endpoint may have been paused meanwhile.
        if self.deliveries.delays.is_account_paused(turn.account) {
            (turn.is_over, self.sweep.has_delayed) = (true, true);
        }
        !turn.is_over && !self.deliveries.delays.is_paused()
    }

    /// Waits for a place. Returns false if the turn is over before.
    async fn has_place(&mut self, turn: &Turn) -> bool {
        if turn.started >= AT_ONCE_OF_ACCOUNT && Instant::now() >= turn.ends {
            return false;
        }
        loop {
            let (own, most) = (self.deliveries.count_of(turn.account), self.most_of(turn.account));
            let is_deferred = self.deliveries.is_deferred(turn.account);
            let places = if own < KEPT && !is_deferred { AT_ONCE } else { AT_ONCE - KEPT };
            if own < most && self.deliveries.count() < places {
                return true;
            }
            let may_retry = match (own, is_deferred) {
                // An account without deliveries in flight gets the next place, even if its turn ends meanwhile.
                (0, false) => {
                    self.deliveries.record_next().await;
                    true
                }
                // Slow deliveries may hold all places. Then the sweep is interrupted, so that other accounts get a turn.
                (0, true) => {
                    self.sweep.is_crowded = timeout(PATIENCE, self.deliveries.record_next()).await.is_err();
                    !self.sweep.is_crowded
                }
                // An account that has started deliveries in this turn starts others until its end, if it may have several.
                _ if most == 1 || turn.last.is_none() => false,
                _ => timeout_at(turn.ends, self.deliveries.record_next()).await.is_ok(),
            };
            if !may_retry {
                return false;
            }
        }
    }

    /// Returns the number of deliveries of an account that run at once.
    fn most_of(&self, account: AccountId) -> usize {
        let (accounts, delays) = (self.accounts.max(self.sweep.accounts), &self.deliveries.delays);
        if accounts == 1 {
            AT_ONCE
        } else if delays.has_failed() || delays.is_failing(account) {
            AT_ONCE_OF_FAILING
        } else if self.deliveries.is_slow {
            AT_ONCE_OF_ACCOUNT.min(AT_ONCE.div_ceil(accounts))
        } else {
            AT_ONCE_OF_ACCOUNT
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::sweep::Sweep;
    use super::*;
    use crate::relay::deliveries::Deliveries;
    use crate::relay::deliveries::tests::{ADA, BEN, Scripted, start};
    use crate::runtime::clock::Clock;
    use crate::store::Store;
    use crate::store::sqlite::{Options, Sqlite};

    /// Returns a relay with messages of this number of accounts.
    fn relaying(accounts: usize) -> Relaying<Scripted> {
        let folder = tempfile::tempdir().unwrap();
        Relaying {
            receiver: Arc::new(Scripted),
            deliveries: Deliveries::default(),
            store: Arc::new(Store::Sqlite(Sqlite::open(&Options::new(folder.path())).unwrap())),
            clock: Clock::System,
            status: Arc::default(),
            lease: Default::default(),
            lease_confirmed_at: None,
            next_count: Instant::now(),
            sweep: Sweep::default(),
            pass_starts: [None; 2],
            accounts,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn account_has_less_beside_others_and_after_failures() {
        for (accounts, is_slow, has_failed, length, most) in [
            (1, true, true, TURN_ALONE, [16, 16]),
            (2, true, false, TURN, [8, 8]),
            (5, false, false, TURN, [8, 8]),
            (5, true, false, TURN, [4, 4]),
            (5, true, true, TURN, [1, 4]),
        ] {
            let mut relaying = relaying(accounts);
            assert_eq!(relaying.begin_turn(ADA, false).ends, Instant::now() + length);
            relaying.deliveries.is_slow = is_slow;
            if has_failed {
                relaying.deliveries.delays.message_rejected(ADA, MessageId::MIN);
            }
            assert_eq!([ADA, BEN].map(|account| relaying.most_of(account)), most);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn two_places_are_kept_for_accounts_with_fewer_deliveries() {
        let mut relaying = relaying(1);
        let [ada, ben] = [ADA, BEN].map(|account| relaying.begin_turn(account, true));
        start(&mut relaying.deliveries, &[(BEN, "1000 acknowledge"); 13]);
        assert!(relaying.has_place(&ben).await);
        start(&mut relaying.deliveries, &[(ADA, "1000 acknowledge")]);
        assert!(!relaying.has_place(&ben).await && relaying.has_place(&ada).await);
        start(&mut relaying.deliveries, &[(ADA, "1000 acknowledge")]);
        assert!(!relaying.has_place(&ada).await);

        let begun = Turn { last: Some(MessageId::MIN), ends: Instant::now() + TURN, ..ada };
        assert!(!relaying.has_place(&begun).await, "the turn ends before a delivery");
        let begun = Turn { ends: Instant::now() + 2 * TURN_ALONE, started: AT_ONCE_OF_ACCOUNT, ..begun };
        assert!(relaying.has_place(&begun).await, "deliveries have ended");
        tokio::time::advance(2 * TURN_ALONE).await;
        assert!(!relaying.has_place(&begun).await, "the turn has ended");
        assert!(relaying.has_place(&Turn { started: AT_ONCE_OF_ACCOUNT - 1, ..begun }).await);
    }

    #[tokio::test(start_paused = true)]
    async fn account_without_deliveries_waits_for_a_place_unless_it_is_deferred() {
        let mut relaying = relaying(2);
        start(&mut relaying.deliveries, &[(BEN, "1000 acknowledge"); AT_ONCE]);
        relaying.deliveries.delays.message_rejected(ADA, MessageId::MIN);
        let [ada, other] = [ADA, AccountId(3)].map(|account| relaying.begin_turn(account, true));
        assert!(!relaying.has_place(&ada).await && relaying.sweep.is_crowded);
        assert!(relaying.has_place(&other).await);
        assert_eq!(relaying.deliveries.count(), AT_ONCE - 1);
    }
}
