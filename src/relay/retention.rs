//! Deletion of sent messages after their retention time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::Status;
use crate::domain::Timestamp;
use crate::runtime::clock::Clock;
use crate::store::{Result, Store};

const INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of messages to delete in one write, so that other writes are not blocked.
const BATCH: u32 = 256;

/// Deletes messages `retention` after they were sent, while this process is the active relay. Never ends.
pub async fn run(retention: Duration, store: Arc<Store>, clock: Clock, status: Arc<Status>) {
    loop {
        sleep(INTERVAL).await;
        if status.is_active()
            && let Err(error) = delete_sent(&store, clock.earlier().minus(retention)).await
        {
            // At level debug, because the relay itself reports an unavailable database.
            tracing::debug!(%error, "cannot delete expired messages, retrying");
        }
    }
}

async fn delete_sent(store: &Store, before: Timestamp) -> Result<()> {
    while store.delete_sent_messages(before, BATCH).await? == u64::from(BATCH) {}
    Ok(())
}
