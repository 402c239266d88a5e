//! The statements of a query on messages, which both databases read alike.

use crate::domain::{MessageQuery, MessageState};
use crate::store::export;

/// Selects the page after an account and an id, which are the parameters. Columns: id, account, text, time of acceptance, time
/// of sending, and the account's address.
///
/// In SQLite, a unary plus hides `sent_at` from the planner. Otherwise every page of queued messages would be looked up in
/// `messages_by_sending`, which means reading and sorting the whole backlog. The newest are a single page.
pub fn select(query: &MessageQuery, is_sqlite: bool) -> String {
    let sent_at = if is_sqlite && query.newest.is_none() { "+m.sent_at" } else { "m.sent_at" };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::AccountId;
    use crate::store::sqlite::plan;

    #[test]
    fn export_pages_are_read_in_key_order_without_sorting() {
        for state in [None, Some(MessageState::Waiting), Some(MessageState::Sent)] {
            for account in [None, Some(AccountId(1))] {
                let query = MessageQuery { account, state, newest: None };
                let steps = plan(&select(&query, true)).join("\n");
                assert!(steps.contains("USING PRIMARY KEY"), "{query:?}: {steps}");
                assert!(!steps.contains("TEMP B-TREE"), "{query:?}: {steps}");
            }
        }
    }
}
