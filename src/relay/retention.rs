//! Messages that were sent are kept for a while, and then deleted.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Status, stop_asked};
use crate::domain::Clock;
use crate::store::{Result, Store};

/// How often to look for messages that were sent long enough ago, and how many are deleted in one step.
const CLEAN: Duration = Duration::from_secs(10);
const DELETED_AT_ONCE: u32 = 256;

/// Deletes messages that were sent long enough ago, in small steps, so that other writes come in between.
pub struct Cleaner {
    pub store: Arc<Store>,
    pub clock: Clock,
    pub status: Arc<Status>,
    pub retention: Duration,
}

impl Cleaner {
    pub async fn clean(self, stopped: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(CLEAN) => {}
                () = stop_asked(stopped.clone()) => return,
            }
            if self.status.is_relaying()
                && let Err(error) = self.delete_old(&stopped).await
            {
                // It is tried again soon, and what is in the way is told by who meets it first.
                tracing::debug!(%error, "messages that were sent can't be deleted");
            }
        }
    }

    async fn delete_old(&self, stopped: &watch::Receiver<bool>) -> Result<()> {
        let before = self.clock.steady().minus(self.retention);
        while self.store.delete_sent_messages(before, DELETED_AT_ONCE).await? == u64::from(DELETED_AT_ONCE) {
            if *stopped.borrow() {
                break;
            }
        }
        Ok(())
    }
}
