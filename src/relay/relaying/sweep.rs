//! A sweep through the queued messages, which gives each account a turn.
//!
//! A turn that takes too long is over, and the next sweep continues it, so that no account keeps others waiting. A sweep has
//! two passes: accounts whose last message failed or was slow are deferred to the second, so that they keep no others
//! waiting.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::turn::AT_ONCE;
use super::{Relaying, database};
use crate::domain::{AccountId, MessageId};
use crate::relay::deliveries::{PATIENCE, Receiver};

/// Messages read at once. Delivering them takes at most 22 s, so that the relay confirms its lease in time.
const BATCH: usize = 2 * AT_ONCE;

/// Time to wait after a sweep if `Delays` had no space for a message that failed, because the next sweep repeats it.
const BRAKE: Duration = Duration::from_secs(1);

/// Precedes every account and message.
const NOBODY: AccountId = AccountId(0);

/// Findings of the current sweep.
#[derive(Default)]
pub struct Sweep {
    /// Set at the end of the sweep, unless a pause interrupts it.
    is_done: bool,
    /// Number of batches read.
    batches: usize,
    /// Number of accounts with messages to deliver or that are paused, and the one counted last.
    pub accounts: usize,
    counted: Option<AccountId>,
    /// True if the sweep continues one that was interrupted.
    is_partial: bool,
    /// Deferred accounts have messages to deliver.
    pub has_deferred: bool,
    /// A deferred account got no place in time, which interrupts the sweep.
    pub is_crowded: bool,
    has_started: bool,
    pub has_acknowledged: bool,
    /// Messages that failed earlier are not tried yet.
    pub has_delayed: bool,
    /// Messages were left for the next sweep.
    pub has_more: bool,
}

impl Sweep {
    /// Returns whether no message waits because of a failure.
    pub const fn ends_outage(&self, in_flight: usize) -> bool {
        self.is_done && !self.has_delayed && (self.has_acknowledged || in_flight == 0)
    }

    pub fn count(&mut self, account: AccountId) {
        if self.counted.replace(account) != Some(account) {
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
        if is_over && self.sweep.has_deferred {
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

    /// Gives each account a turn. Returns false if the pass was interrupted.
    async fn pass(&mut self, is_second: bool) -> Result<bool, String> {
        let mut after = (NOBODY, MessageId::MIN);
        if let Some(last) = self.pass_starts[usize::from(is_second)].take() {
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
                if self.may_start(&mut turn, message.id).await {
                    (turn.last, turn.started) = (Some(message.id), turn.started + 1);
                    self.sweep.has_started = true;
                    self.deliveries.start(Arc::clone(&self.receiver), message);
                } else if self.sweep.is_crowded || self.deliveries.delays.is_paused() {
                    let mut last = message.id.predecessor();
                    if turn.last.is_some() {
                        (turn.is_over, last) = (true, MessageId::MAX);
                        self.end_turn(&turn);
                    }
                    self.pass_starts[usize::from(is_second)] = Some((turn.account, last));
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_ends_when_nothing_is_delayed() {
        for (has_delayed, has_acknowledged, in_flight, expected) in
            [(false, false, 0, true), (false, false, 1, false), (false, true, 1, true), (true, true, 0, false)]
        {
            let sweep = |is_done| Sweep { is_done, has_delayed, has_acknowledged, ..Sweep::default() };
            assert_eq!(sweep(true).ends_outage(in_flight), expected);
            assert!(!sweep(false).ends_outage(in_flight));
        }
    }

    #[test]
    fn message_causes_no_sweep_while_many_are_delayed() {
        for (has_delayed, batches, expected) in [(false, 2, true), (true, 1, true), (true, 2, false)] {
            let sweep = |is_done| Sweep { is_done, has_delayed, batches, ..Sweep::default() };
            assert_eq!(sweep(true).may_repeat_on_message(), expected);
            assert!(!sweep(false).may_repeat_on_message());
        }
    }

    #[test]
    fn accounts_are_counted_once() {
        let mut sweep = Sweep::default();
        [1, 1, 2, 2, 3].into_iter().for_each(|number| sweep.count(AccountId(number)));
        assert_eq!(sweep.accounts, 3);
    }
}
