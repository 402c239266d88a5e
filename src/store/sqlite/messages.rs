//! Messages.

use rusqlite::Connection;

use super::Batch;
use crate::domain::{AccountId, Message, MessageId, MessageText, Timestamp};
use crate::store::{Result, StoreError};

pub fn insert(batch: &Batch<'_>, message: &Message) -> Result<()> {
    batch.execute(
        "INSERT INTO messages (id, account_id, message, created_at) VALUES (?1, ?2, ?3, ?4)",
        (message.id.as_bytes(), message.account.0, message.text.as_str(), message.created_at.as_milliseconds()),
    )?;
    Ok(())
}

/// An account's own messages, newest first: those before `before`. Reads one more than asked for, which tells if more
/// follow.
pub fn list_of(
    conn: &Connection,
    account: AccountId,
    before: Option<MessageId>,
    limit: u32,
) -> Result<(Vec<Message>, bool)> {
    let before = before.map_or([0xff; 16], |id| *id.as_bytes());
    let mut statement = conn.prepare_cached(
        "SELECT id, message, created_at FROM messages WHERE account_id = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
    )?;
    let mut rows = statement.query((account.0, before, i64::from(limit) + 1))?;
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        if messages.len() == limit as usize {
            return Ok((messages, true));
        }
        let text = MessageText::parse(row.get(1)?);
        messages.push(Message {
            id: MessageId::from_bytes(row.get(0)?),
            account,
            text: text.map_err(|invalid| StoreError::Failed(format!("a message {invalid}")))?,
            created_at: Timestamp::from_milliseconds(row.get(2)?),
        });
    }
    Ok((messages, false))
}
