//! Messages.

use std::convert::Infallible;

use tokio_postgres::Error;
use uuid::Uuid;

use crate::domain::{AccountId, Direction, Message, MessageId, PageLimit, TrackedMessage};
use crate::store::postgres::database::Postgres;
use crate::store::postgres::write::{Write, WriteResult};
use crate::store::row::FromRow;
use crate::store::{Outcome, Result, WriteKey, messages};
use postgres_group_commit::PreparedConnection;

const INSERT: &str = "INSERT INTO messages (account_id, id, message, created_at)
    SELECT account_id, id, message, created_at FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::bigint[])
        AS given (account_id, id, message, created_at)";

/// A query for [`TrackedMessage`]s. Ends with the first row after 256 KiB of texts, which says that more follow. The server
/// knows the sizes of texts without reading them.
macro_rules! select {
    ($condition:literal, $order:literal) => {
        concat!(
            "SELECT id, account_id, message, created_at, sent_at FROM (
                SELECT *, sum(octet_length(message)) OVER (ORDER BY ",
            $order,
            " ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS bytes
                FROM messages WHERE account_id = $1 AND ",
            $condition,
            " ORDER BY ",
            $order,
            " LIMIT $3) AS page WHERE coalesce(bytes, 0) <= 262144 ORDER BY ",
            $order
        )
    };
}

const LIST_OF: &str = select!("id > $2", "id");

const LIST_OF_DESCENDING: &str = select!("id < $2", "id DESC");

/// Statements prepared on each connection for reads or single writes.
pub const STATEMENTS: &[&str] = &[LIST_OF, LIST_OF_DESCENDING];

impl Postgres {
    pub async fn create_message(&self, message: Message, key: Option<WriteKey<Message>>) -> Result<Outcome<Message>> {
        self.messages.submit(message, key).await
    }

    pub async fn list_messages_of(
        &self,
        account: AccountId,
        direction: Direction,
        after: Option<MessageId>,
        limit: PageLimit,
    ) -> Result<(Vec<TrackedMessage>, bool)> {
        let (sql, start) = direction.choose((LIST_OF, Uuid::nil()), (LIST_OF_DESCENDING, Uuid::max()));
        let after = after.map_or(start, |id| Uuid::from_bytes(*id.as_bytes()));
        let rows = self.readers.query(sql, &[&account.0, &after, &(limit.get() + 1)]).await?;
        Ok(messages::page(rows.iter().map(TrackedMessage::from_row), limit)?)
    }
}

impl Write for Message {
    type Output = Self;
    type Refusal = Infallible;

    const STATEMENTS: &[&str] = &[INSERT];

    fn bytes(&self) -> usize {
        self.text.as_str().len()
    }

    async fn run(prepared: &PreparedConnection, messages: Vec<Self>) -> Result<Vec<WriteResult<Self>>, Error> {
        let (accounts, ids, texts, times): (Vec<_>, Vec<_>, Vec<_>, Vec<_>) = messages
            .iter()
            .map(|message| {
                let id = Uuid::from_bytes(*message.id.as_bytes());
                (message.account.0, id, message.text.as_str(), message.created_at.as_milliseconds())
            })
            .collect();
        prepared.query(INSERT, &[&accounts, &ids, &texts, &times]).await?;
        Ok(messages.into_iter().map(Ok).collect())
    }
}
