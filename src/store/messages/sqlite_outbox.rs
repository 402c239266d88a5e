//! The outbox in SQLite: queued and sent messages, and the lease of the process that relays them.

use std::fs::{File, TryLockError};

use rusqlite::Row;

use crate::domain::{AccountId, MessageId, Timestamp};
use crate::store::sqlite::{Atomicity, Effect, Sqlite, own_file, rows};
use crate::store::{Result, StoreError};

/// File in the data directory. The process that holds its lock is the relay. The lock ends with the process.
const LOCK: &str = "petstore-relay.lock";

/// Orders queued messages by account and id, then sent messages by time. Created by the first relay and kept. Without a
/// relay, a message is written to one B-tree only.
///
/// The column `sent_at` costs 0.3 % of the instructions of a message, and the index 13 %. An index of the queued messages
/// alone would cost 12 %, and the search for old sent messages would read the whole table.
pub const INDEX: &str = "CREATE INDEX IF NOT EXISTS messages_by_sending ON messages (sent_at, account_id, id)";

/// The index of schema versions 1 and 2.
pub const FIRST_INDEX: &str = "CREATE INDEX messages_by_sending ON messages (sent_at, id)";

/// Lock of the process that relays messages.
#[derive(Debug, Default)]
pub struct RelayLease(Option<File>);

impl Sqlite {
    pub async fn hold_relay_lease(&self, lease: &mut RelayLease) -> Result<bool> {
        if lease.0.is_some() {
            return Ok(true);
        }
        let path = self.data_dir().join(LOCK);
        let unavailable = |error| StoreError::Unavailable(format!("{}: {error}", path.display()));
        let file = own_file(&path).map_err(unavailable)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(unavailable(error)),
            Ok(()) => {}
        }
        self.submit_long(Atomicity::Statement, |conn| Ok(conn.execute_batch(INDEX)?)).await?;
        lease.0 = Some(file);
        Ok(true)
    }

    pub async fn mark_messages_sent(&self, messages: Vec<(AccountId, MessageId)>, now: Timestamp) -> Result<()> {
        self.submit(Atomicity::Batch, Effect::Unlisted, move |conn| {
            // The clock of the process that accepted the message may differ.
            let mark = "UPDATE messages SET sent_at = max(?1, created_at) WHERE account_id = ?2 AND id = ?3";
            for (account, id) in &messages {
                conn.execute(mark, (now.as_milliseconds(), account.0, id.as_bytes()))?;
            }
            Ok(())
        })
        .await
    }

    pub async fn delete_sent_messages(&self, before: Timestamp, limit: u32) -> Result<u64> {
        self.submit(Atomicity::Batch, Effect::Unlisted, move |conn| {
            // One by one: for a pair `IN` a subquery, SQLite would read all messages of an account.
            let oldest = "SELECT account_id, id FROM messages WHERE sent_at < ?1 ORDER BY sent_at LIMIT ?2";
            let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let keys: Vec<(i64, [u8; 16])> = rows::all(conn, oldest, (before.as_milliseconds(), limit), read)?;
            for key in &keys {
                conn.execute("DELETE FROM messages WHERE account_id = ?1 AND id = ?2", *key)?;
            }
            Ok(keys.len() as u64)
        })
        .await
    }
}
