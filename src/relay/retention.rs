//! Deletion of sent messages after their retention time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Status, until_stopped};
use crate::clock::Clock;
use crate::store::{Result, Store};

const INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of messages to delete in one write, so that other writes are not blocked.
const BATCH: u32 = 256;

/// Deletes expired messages while this process is the active relay.
pub struct RetentionWorker {
    pub store: Arc<Store>,
    pub clock: Clock,
    pub status: Arc<Status>,
    pub retention: Duration,
}

impl RetentionWorker {
    pub async fn run(self, stopped: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = until_stopped(stopped.clone()) => return,
            }
            if self.status.is_active()
                && let Err(error) = self.delete_expired(&stopped).await
            {
                // At level debug, because the relay itself reports an unavailable database.
                tracing::debug!(%error, "cannot delete expired messages, retrying");
            }
        }
    }

    async fn delete_expired(&self, stopped: &watch::Receiver<bool>) -> Result<()> {
        let before = self.clock.steady().minus(self.retention);
        while self.store.delete_sent_messages(before, BATCH).await? == u64::from(BATCH) {
            if *stopped.borrow() {
                break;
            }
        }
        Ok(())
    }
}
