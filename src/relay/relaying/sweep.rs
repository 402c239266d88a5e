//! A sweep through the queued messages, which gives each account a turn.
//!
//! A turn that takes too long is over, and the next sweep continues it, so that no account keeps others waiting. A sweep has
//! two passes: accounts whose messages fail or are slow wait for the second, so that they keep no others waiting.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{Relaying, database};
use crate::domain::{AccountId, MessageId};
use crate::relay::deliveries::{PATIENCE, Receiver};

/// Number of deliveries that run at once.
const AT_ONCE: usize = 16;

/// Places kept for accounts that do not come last and have fewer deliveries in flight.
const KEPT: usize = 2;

/// Number of deliveries of one account that run at once while others have messages to deliver, and after a failure.
const AT_ONCE_OF_ACCOUNT: usize = AT_ONCE / 2;
const AT_ONCE_OF_FAILING: usize = 1;

/// Messages read at once. Delivering them takes at most 22 s, so that the relay confirms its lease in time.
const BATCH: usize = 2 * AT_ONCE;

/// Maximum time of a turn, and of one while no other account has messages to deliver.
const TURN: Duration = Duration::from_millis(10);
const TURN_ALONE: Duration = Duration::from_secs(1);

/// Time to wait after a sweep if `Delays` had no space for a message that failed, because the next sweep repeats it.
const BRAKE: Duration = Duration::from_secs(1);

/// Precedes every account and message.
const NOBODY: AccountId = AccountId(0);

/// What the current sweep has found.
#[derive(Default)]
pub struct Sweep {
    /// Set at the end of the sweep, unless a pause interrupts it.
    is_done: bool,
    /// Number of batches read.
    batches: usize,
    /// Number of accounts with messages to deliver or that are paused, and the last of them.
    accounts: usize,
    last: Option<AccountId>,
    /// True if the sweep continues one that was interrupted.
    is_partial: bool,
    /// Accounts that come last have messages to deliver.
    has_last: bool,
    /// Accounts that come last wait for a place, which interrupts the sweep.
    is_crowded: bool,
    has_started: bool,
    pub has_acknowledged: bool,
    /// Messages that failed earlier are not tried yet.
    has_delayed: bool,
    /// Messages were left for the next sweep.
    pub has_more: bool,
}

struct Turn {
    account: AccountId,
    /// True in the second pass.
    is_second: bool,
    ends: Instant,
    /// Messages up to this one had their turn in an earlier sweep.
    resume_after: Option<MessageId>,
    /// The last message that was started.
    last: Option<MessageId>,
    started: usize,
    is_over: bool,
}

impl Sweep {
    /// Returns whether no message waits because of a failure.
    pub const fn ends_outage(&self, in_flight: usize) -> bool {
        self.is_done && !self.has_delayed && (self.has_acknowledged || in_flight == 0)
    }

    fn count(&mut self, account: AccountId) {
        if self.last.replace(account) != Some(account) {
            self.accounts += 1;
        }
    }

    /// Returns whether a new message may cause the next sweep. A sweep reads all delayed messages, so if they are many, it
    /// waits.
    pub const fn may_repeat_on_message(&self) -> bool {
        self.is_done && (!self.has_delayed || self.batches <= 1)
    }
}

impl<R: Receiver> Relaying<R> {
    /// Starts deliveries of messages that are due. A pause of the endpoint interrupts the sweep.
    pub(super) async fn sweep(&mut self) -> Result<(), String> {
        let mut is_over = self.pass(false).await?;
        if is_over && self.sweep.has_last {
            if self.sweep.has_more && self.deliveries.delays.is_head_start() {
                self.sweep.has_delayed = true;
            } else {
                is_over = self.pass(true).await?;
            }
        }
        if !is_over {
            self.accounts = self.accounts.max(self.sweep.accounts).max(2);
            return self.mark_sent().await;
        }
        if !self.sweep.is_partial && self.sweep.accounts > 0 {
            self.accounts = self.sweep.accounts;
        }
        if mem::take(&mut self.deliveries.has_undelayed) {
            sleep(BRAKE).await;
        }
        if !self.sweep.has_more {
            let _ = timeout(PATIENCE, self.deliveries.finish()).await;
        } else if !self.sweep.has_started {
            let _ = timeout(PATIENCE, self.deliveries.record_next()).await;
        }
        self.sweep.is_done = true;
        self.mark_sent().await
    }

    /// Returns false if it was interrupted.
    async fn pass(&mut self, is_second: bool) -> Result<bool, String> {
        let mut after = (NOBODY, MessageId::MIN);
        if let Some(last) = self.resume_after[usize::from(is_second)].take() {
            after = last;
            // Messages before it wait, too.
            (self.sweep.is_partial, self.sweep.has_more, self.sweep.has_delayed) = (true, true, true);
        }
        let mut turn = self.begin_turn(NOBODY, is_second);
        loop {
            let batch = self.store.unsent_messages(after, BATCH as u32).await.map_err(database)?;
            let Some(last) = batch.last().map(|last| last.id) else { break };
            self.sweep.batches += 1;
            let is_last = batch.len() < BATCH;
            for message in batch {
                if turn.account != message.account {
                    self.end_turn(&turn);
                    turn = self.begin_turn(message.account, is_second);
                }
                if !self.is_interrupted() && self.may_start(&mut turn, message.id).await {
                    (turn.last, turn.started) = (Some(message.id), turn.started + 1);
                    self.sweep.has_started = true;
                    self.deliveries.start(Arc::clone(&self.receiver), message);
                } else if self.is_interrupted() {
                    let mut last = message.id.predecessor();
                    if turn.last.is_some() {
                        (turn.is_over, last) = (true, MessageId::MAX);
                        self.end_turn(&turn);
                    }
                    self.resume_after[usize::from(is_second)] = Some((turn.account, last));
                    return Ok(false);
                }
            }
            let skipped = if turn.is_over { Some(MessageId::MAX) } else { turn.resume_after };
            after = (turn.account, skipped.map_or(last, |id| id.max(last)));
            self.mark_sent().await?;
            if !self.has_lease().await? {
                return Ok(false);
            }
            if is_last {
                break;
            }
            self.count().await?;
        }
        self.end_turn(&turn);
        Ok(true)
    }

    fn is_interrupted(&self) -> bool {
        self.sweep.is_crowded || self.deliveries.delays.is_paused()
    }

    fn begin_turn(&mut self, account: AccountId, is_second: bool) -> Turn {
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

    fn end_turn(&mut self, turn: &Turn) {
        let delays = &mut self.deliveries.delays;
        if turn.is_over {
            return delays.set_resume_after(turn.account, turn.last.or(turn.resume_after));
        }
        // The next turn begins with the oldest message.
        self.sweep.has_more |= turn.resume_after.is_some();
        delays.set_resume_after(turn.account, None);
    }

    /// Waits until a message may be delivered. Returns false if it waits for a later sweep.
    async fn may_start(&mut self, turn: &mut Turn, id: MessageId) -> bool {
        if turn.is_over || Some(id) <= turn.resume_after || self.deliveries.has(id) {
            return false;
        }
        if self.deliveries.delays.is_delayed(turn.account, id) {
            self.sweep.has_delayed = true;
            return false;
        }
        if !turn.is_second && self.deliveries.comes_last(turn.account) {
            (turn.is_over, self.sweep.has_last) = (true, true);
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
            let comes_last = self.deliveries.comes_last(turn.account);
            let places = if own < KEPT && !comes_last { AT_ONCE } else { AT_ONCE - KEPT };
            if own < most && self.deliveries.count() < places {
                return true;
            }
            let may_retry = match (own, comes_last) {
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
