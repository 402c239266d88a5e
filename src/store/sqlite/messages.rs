//! Messages in SQLite.

use rusqlite::{Connection, Row};

use super::Sqlite;
use super::writer::{Atomicity, Batch};
use crate::domain::{AccountId, Message, MessageId, MessageText, Timestamp, TrackedMessage};
use crate::store::{Outcome, Result, StoreError, WriteKey};

impl Sqlite {
    pub async fn create_message(&self, message: Message, key: Option<WriteKey<Message>>) -> Result<Outcome<Message>> {
        self.write_keyed(Atomicity::Statement, key, move |batch| insert(batch, &message).map(|()| Ok(message))).await
    }

    pub async fn list_messages_of(
        &self,
        account: AccountId,
        before: Option<MessageId>,
        limit: u32,
    ) -> Result<(Vec<TrackedMessage>, bool)> {
        self.read(|conn| list_of(conn, account, before, limit))
    }
}

fn insert(batch: &Batch<'_>, message: &Message) -> Result<()> {
    batch.execute(
        "INSERT INTO messages (id, account_id, message, created_at) VALUES (?1, ?2, ?3, ?4)",
        (message.id.as_bytes(), message.account.0, message.text.as_str(), message.created_at.as_milliseconds()),
    )?;
    Ok(())
}

/// Reads one row beyond the limit to learn whether more follow.
fn list_of(
    conn: &Connection,
    account: AccountId,
    before: Option<MessageId>,
    limit: u32,
) -> Result<(Vec<TrackedMessage>, bool)> {
    let before = before.map_or([0xff; 16], |id| *id.as_bytes());
    let mut statement = conn.prepare_cached(
        "SELECT id, account_id, message, created_at, sent_at FROM messages
         WHERE account_id = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
    )?;
    let mut rows = statement.query((account.0, before, i64::from(limit) + 1))?;
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        if messages.len() == limit as usize {
            return Ok((messages, true));
        }
        let sent_at: Option<i64> = row.get(4)?;
        messages.push((from_row(row)?, sent_at.map(Timestamp::from_milliseconds)));
    }
    Ok((messages, false))
}

/// Reads a row that begins with the id, account, text and creation time.
pub fn from_row(row: &Row<'_>) -> Result<Message> {
    let text = MessageText::parse(row.get(2)?);
    Ok(Message {
        id: MessageId::from_bytes(row.get(0)?),
        account: AccountId(row.get(1)?),
        text: text.map_err(|invalid| StoreError::Failed(format!("a message {invalid}")))?,
        created_at: Timestamp::from_milliseconds(row.get(3)?),
    })
}
