//! Messages in SQLite.

use rusqlite::Statement;

use crate::domain::{AccountId, Direction, Message, MessageId, PageLimit, TrackedMessage};
use crate::store::sqlite::{Effect, Insert, NewRow, Sqlite, rows};
use crate::store::{Outcome, Result, WriteKey, messages};

const INSERT: &str = "INSERT INTO messages (id, account_id, message, created_at) VALUES (?, ?, ?, ?)";

const INSERT_SEVERAL: &str = "INSERT INTO messages (id, account_id, message, created_at) VALUES
    (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?)";

/// A query for [`TrackedMessage`]s.
macro_rules! select {
    ($clauses:literal) => {
        concat!("SELECT id, account_id, message, created_at, sent_at FROM messages WHERE account_id = ?1 ", $clauses)
    };
}

const LIST_OF: &str = select!("AND id > ?2 ORDER BY id LIMIT ?3");

const LIST_OF_DESCENDING: &str = select!("AND id < ?2 ORDER BY id DESC LIMIT ?3");

impl Sqlite {
    pub async fn create_message(&self, message: Message, key: Option<WriteKey<Message>>) -> Result<Outcome<Message>> {
        self.create(message, key).await
    }

    pub async fn list_messages_of(
        &self,
        account: AccountId,
        direction: Direction,
        after: Option<MessageId>,
        limit: PageLimit,
    ) -> Result<(Vec<TrackedMessage>, bool)> {
        let (sql, start) = direction.choose((LIST_OF, [0; 16]), (LIST_OF_DESCENDING, [0xff; 16]));
        let params = (account.0, after.map_or(start, |id| *id.as_bytes()), limit.get() + 1);
        self.read(|conn| Ok(messages::page(conn.prepare_cached(sql)?.query_map(params, rows::read)?, limit)?))
    }
}

impl NewRow for Message {
    const INSERT: Insert = Insert { one: INSERT, several: INSERT_SEVERAL, columns: 4 };
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
