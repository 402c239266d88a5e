//! Statements of SQLite, and the row of a new message.

use rusqlite::Statement;

use crate::domain::Message;
use crate::store::sqlite::{Effect, Insert, NewRow};

const INSERT: &str = "INSERT INTO messages (id, account_id, message, created_at) VALUES (?, ?, ?, ?)";

const INSERT_SEVERAL: &str = "INSERT INTO messages (id, account_id, message, created_at) VALUES
    (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?)";

/// A query for [`TrackedMessage`](crate::domain::TrackedMessage)s.
macro_rules! select {
    ($clauses:literal) => {
        concat!("SELECT id, account_id, message, created_at, sent_at FROM messages WHERE account_id = ?1 ", $clauses)
    };
}

pub const LIST_OF: &str = select!("AND id > ?2 ORDER BY id LIMIT ?3");

pub const LIST_OF_DESCENDING: &str = select!("AND id < ?2 ORDER BY id DESC LIMIT ?3");

impl NewRow for Message {
    const INSERT: Insert = Insert { one: INSERT, several: INSERT_SEVERAL };
    const EFFECT: Effect = Effect::Unlisted;
    type Added = Self;

    fn bind(&self, statement: &mut Statement<'_>, first: usize) -> rusqlite::Result<()> {
        statement.raw_bind_parameter(first, self.id.as_bytes())?;
        statement.raw_bind_parameter(first + 1, self.account.0)?;
        statement.raw_bind_parameter(first + 2, self.text.as_str())?;
        statement.raw_bind_parameter(first + 3, self.created_at.as_milliseconds())
    }

    fn added(self, _rowid: i64) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::plan;

    #[test]
    fn lists_read_the_messages_of_the_account_in_order() {
        assert_eq!(plan(LIST_OF), ["SEARCH messages USING PRIMARY KEY (account_id=? AND id>?)"]);
        assert_eq!(plan(LIST_OF_DESCENDING), ["SEARCH messages USING PRIMARY KEY (account_id=? AND id<?)"]);
    }
}
