//! Messages.

use rusqlite::Connection;

use crate::domain::Message;
use crate::store::Result;

pub fn insert(conn: &Connection, message: &Message) -> Result<()> {
    conn.prepare_cached("INSERT INTO messages (id, account_id, message, created_at) VALUES (?1, ?2, ?3, ?4)")?
        .execute((
            message.id.as_bytes(),
            message.account.0,
            message.text.as_str(),
            message.created_at.as_milliseconds(),
        ))?;
    Ok(())
}
