//! Statements of PostgreSQL, and the batch of new messages.

use std::convert::Infallible;

use tokio_postgres::Error;

use crate::domain::Message;
use crate::store::Result;
use crate::store::postgres::write::{Write, WriteResult};
use postgres_group_commit::PreparedConnection;

const INSERT: &str = "INSERT INTO messages (account_id, id, message, created_at)
    SELECT account_id, id, message, created_at FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::bigint[])
        AS given (account_id, id, message, created_at)";

/// A query for [`TrackedMessage`](crate::domain::TrackedMessage)s. Ends with the first row after 256 KiB of texts, which says that more follow. The server
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

pub const LIST_OF: &str = select!("id > $2", "id");

pub const LIST_OF_DESCENDING: &str = select!("id < $2", "id DESC");

/// The clock of the process that accepted a message may differ.
pub const MARK_SENT: &str = "UPDATE messages SET sent_at = greatest($3, created_at)
    FROM unnest($1::bigint[], $2::uuid[]) AS sent (account_id, id)
    WHERE messages.account_id = sent.account_id AND messages.id = sent.id";

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
            .map(|message| (message.account, message.id, message.text.as_str(), message.created_at))
            .collect();
        prepared.query(INSERT, &[&accounts, &ids, &texts, &times]).await?;
        Ok(messages.into_iter().map(Ok).collect())
    }
}
