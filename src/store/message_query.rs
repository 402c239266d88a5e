//! The statements of a query on messages, which both databases read alike.

use super::export;
use crate::domain::{MessageQuery, MessageRecord, MessageState};

/// What messages are ordered by: account and id.
pub type Key = (i64, [u8; 16]);

/// The key before every message that is asked for.
pub fn first(query: &MessageQuery) -> Key {
    (query.account.map_or(0, |account| account.0), [0; 16])
}

pub fn key(record: &MessageRecord) -> Key {
    (record.message.account.0, *record.message.id.as_bytes())
}

/// How many rows `select` returns, if others may follow.
pub fn page_size(query: &MessageQuery) -> usize {
    if query.newest.is_some() { usize::MAX } else { export::MESSAGES }
}

/// A page of those after a key, whose parts are the parameters. The columns: id, account, text, when they were taken on, when
/// they were sent, and the account's address.
pub fn select(query: &MessageQuery) -> String {
    let columns = "m.id, m.account_id, m.message, m.created_at, m.sent_at, a.email";
    // For one account SQLite would not look up the id within a row value.
    let after = match query.account {
        None => "(m.account_id, m.id) > ($1, $2)",
        Some(_) => "m.account_id = $1 AND m.id > $2",
    };
    let order = match query.newest {
        Some(limit) => format!("m.id DESC LIMIT {limit}"),
        // The order they lie in, so that nothing is sorted.
        None => format!("m.account_id, m.id LIMIT {}", export::MESSAGES),
    };
    format!(
        "SELECT {columns} FROM messages m JOIN accounts a ON a.id = m.account_id
         WHERE {after} {} ORDER BY {order}",
        of_state(query)
    )
}

pub fn count(query: &MessageQuery) -> String {
    // A number is all that is put into the text.
    let account = query.account.map_or_else(|| "true".into(), |account| format!("m.account_id = {}", account.0));
    format!("SELECT count(*) FROM messages m WHERE {account} {}", of_state(query))
}

const fn of_state(query: &MessageQuery) -> &'static str {
    match query.state {
        None => "",
        Some(MessageState::Waiting) => "AND m.sent_at IS NULL",
        Some(MessageState::Sent) => "AND m.sent_at IS NOT NULL",
    }
}
