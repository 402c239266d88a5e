//! The statements of a query on messages, which both databases read alike.

use crate::domain::{MessageQuery, MessageRecord, MessageState};
use crate::store::export;

/// Sort key of messages: account and id.
pub type Key = (i64, [u8; 16]);

/// Returns a key that precedes every message of the query.
pub fn first(query: &MessageQuery) -> Key {
    (query.account.map_or(0, |account| account.0), [0; 16])
}

pub fn key(record: &MessageRecord) -> Key {
    (record.message.account.0, *record.message.id.as_bytes())
}

/// Number of rows in a full page of [`select`]. Fewer rows mean that none follow.
pub fn page_size(query: &MessageQuery) -> usize {
    if query.newest.is_some() { usize::MAX } else { export::MESSAGES }
}

/// Selects the page after a key, whose parts are the parameters. Columns: id, account, text, time of acceptance, time of
/// sending, and the account's address.
///
/// `sent_at` is the expression that the condition on the state tests: `m.sent_at`, possibly hidden from the planner.
pub fn select(query: &MessageQuery, sent_at: &str) -> String {
    let columns = "m.id, m.account_id, m.message, m.created_at, m.sent_at, a.email";
    // With a row value, SQLite would not use the index for the id within one account.
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
        of_state(query, sent_at)
    )
}

pub fn count(query: &MessageQuery) -> String {
    // Only a number is put into the statement.
    let account = query.account.map_or_else(|| "true".into(), |account| format!("m.account_id = {}", account.0));
    format!("SELECT count(*) FROM messages m WHERE {account} {}", of_state(query, "m.sent_at"))
}

fn of_state(query: &MessageQuery, sent_at: &str) -> String {
    match query.state {
        None => String::new(),
        Some(MessageState::Waiting) => format!("AND {sent_at} IS NULL"),
        Some(MessageState::Sent) => format!("AND {sent_at} IS NOT NULL"),
    }
}
