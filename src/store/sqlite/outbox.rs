//! The outbox: messages that wait for the relay, those it has sent, and which process relays.

use std::fs::{File, TryLockError};

use rusqlite::Connection;

use super::{Batch, Sqlite, messages, own_file, unavailable};
use crate::domain::{AccountId, Email, Message, MessageId, MessageQuery, MessageRecord, Timestamp};
use crate::store::{Result, StoreError, export, message_query};

/// In the data directory: who holds its lock relays. The lock dies with the process.
const LOCK: &str = "petstore-relay.lock";

/// Messages that wait come first in it, oldest first, and then those that were sent, in the order they were. Made by the
/// first relay, and kept: without one, a message is written in one place only.
const INDEX: &str = "CREATE INDEX IF NOT EXISTS messages_by_sending ON messages (sent_at, id)";

/// Takes the lock, or keeps it; says whether this process has it.
pub async fn hold(db: &Sqlite, lock: &mut Option<File>) -> Result<bool> {
    if lock.is_some() {
        return Ok(true);
    }
    let path = db.data_dir().join(LOCK);
    let file = own_file(&path).map_err(|error| unavailable(&path, &error))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(unavailable(&path, &error)),
        Ok(()) => {}
    }
    db.write(|conn| Ok(conn.execute_batch(INDEX)?)).await?;
    *lock = Some(file);
    Ok(true)
}

pub fn unsent(conn: &Connection, after: Option<MessageId>, limit: u32) -> Result<Vec<Message>> {
    let mut statement = conn.prepare_cached(
        "SELECT id, account_id, message, created_at FROM messages
         WHERE sent_at IS NULL AND id > ?1 ORDER BY id LIMIT ?2",
    )?;
    let after = after.map_or([0; 16], |id| *id.as_bytes());
    let mut rows = statement.query((after, limit))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(messages::from_row(row)?);
    }
    Ok(found)
}

pub fn mark_sent(batch: &Batch<'_>, messages: &[(AccountId, MessageId)], now: Timestamp) -> Result<()> {
    for (account, id) in messages {
        batch.execute(
            "UPDATE messages SET sent_at = ?1 WHERE account_id = ?2 AND id = ?3",
            (now.as_milliseconds(), account.0, id.as_bytes()),
        )?;
    }
    Ok(())
}

pub fn delete_sent(batch: &Batch<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    // One by one: for pairs `IN` a subquery, SQLite would read all messages of an account.
    let mut statement =
        batch.prepare_cached("SELECT account_id, id FROM messages WHERE sent_at < ?1 ORDER BY sent_at LIMIT ?2")?;
    let keys = statement.query_map((before.as_milliseconds(), limit), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let keys: Vec<(i64, [u8; 16])> = keys.collect::<rusqlite::Result<_>>()?;
    for key in &keys {
        batch.execute("DELETE FROM messages WHERE account_id = ?1 AND id = ?2", *key)?;
    }
    Ok(keys.len() as u64)
}

pub fn count_unsent(conn: &Connection, up_to: u32) -> Result<u64> {
    let count = "SELECT count(*) FROM (SELECT 1 FROM messages WHERE sent_at IS NULL LIMIT ?1)";
    Ok(conn.prepare_cached(count)?.query_row([up_to], |row| row.get::<_, i64>(0))?.unsigned_abs())
}

pub async fn export(
    db: &Sqlite,
    query: &MessageQuery,
    each: &mut dyn FnMut(MessageRecord) -> std::io::Result<()>,
) -> Result<std::io::Result<u64>> {
    let sql = select(query);
    let page = async |after| db.read_once(|conn| page(conn, &sql, after));
    export::in_pages(message_query::page_size(query), message_query::first(query), page, message_query::key, each).await
}

fn select(query: &MessageQuery) -> String {
    // The unary plus hides the column from the planner. Otherwise every page of waiting messages would be found in
    // `messages_by_sending`, which means reading and sorting the whole backlog. The newest are a single page.
    message_query::select(query, if query.newest.is_some() { "m.sent_at" } else { "+m.sent_at" })
}

fn page(conn: &Connection, sql: &str, (account, id): message_query::Key) -> Result<Vec<MessageRecord>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query((account, id))?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let sent_at: Option<i64> = row.get(4)?;
        let email: String = row.get(5)?;
        let account = Email::parse(&email).map_err(|invalid| StoreError::Failed(format!("{email:?} {invalid}")))?;
        records.push(MessageRecord {
            message: messages::from_row(row)?,
            account,
            sent_at: sent_at.map(Timestamp::from_milliseconds),
        });
    }
    Ok(records)
}

pub fn count(conn: &Connection, query: &MessageQuery) -> Result<u64> {
    Ok(conn.query_row(&message_query::count(query), [], |row| row.get::<_, i64>(0))?.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::MessageState;
    use crate::store::sqlite::migrations;

    #[test]
    fn export_pages_are_read_in_key_order_without_sorting() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrations::run(&mut conn).unwrap();
        conn.execute_batch(INDEX).unwrap();
        for state in [None, Some(MessageState::Waiting), Some(MessageState::Sent)] {
            for account in [None, Some(AccountId(1))] {
                let query = MessageQuery { account, state, newest: None };
                let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {}", select(&query))).unwrap();
                let steps = explain.query_map((1, [0; 16]), |row| row.get("detail")).unwrap();
                let plan = steps.collect::<rusqlite::Result<Vec<String>>>().unwrap().join("\n");
                assert!(plan.contains("USING PRIMARY KEY"), "{query:?}: {plan}");
                assert!(!plan.contains("TEMP B-TREE"), "{query:?}: {plan}");
            }
        }
    }
}
