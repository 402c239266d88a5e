//! The statements of a query on messages, which both databases read alike.

use crate::domain::{MessageQuery, MessageState};

/// Their columns: id, account, text, when they were taken on, when they were sent, and the account's address.
pub fn select(query: &MessageQuery) -> String {
    let columns = "m.id, m.account_id, m.message, m.created_at, m.sent_at, a.email";
    let order = match query.newest {
        Some(limit) => format!("m.id DESC LIMIT {limit}"),
        // The order they lie in, so that nothing is sorted.
        None => "m.account_id, m.id".into(),
    };
    format!("SELECT {columns} FROM messages m JOIN accounts a ON a.id = m.account_id {} ORDER BY {order}", asked(query))
}

pub fn count(query: &MessageQuery) -> String {
    format!("SELECT count(*) FROM messages m {}", asked(query))
}

fn asked(query: &MessageQuery) -> String {
    // Numbers are all that is put into the text.
    let account = query.account.map_or_else(|| "true".into(), |account| format!("m.account_id = {}", account.0));
    let state = match query.state {
        None => "",
        Some(MessageState::Waiting) => "AND m.sent_at IS NULL",
        Some(MessageState::Sent) => "AND m.sent_at IS NOT NULL",
    };
    format!("WHERE {account} {state}")
}
