//! Messages.

use std::convert::Infallible;

use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::Postgres;
use super::batch_writer::{Write, WriteResult};
use super::connection::PreparedConnection;
use crate::domain::{AccountId, Message, MessageId, MessageText, Timestamp, TrackedMessage};
use crate::store::{Outcome, Result, StoreError, WriteKey};

const INSERT: &str = "INSERT INTO messages (account_id, id, message, created_at)
    SELECT account_id, id, message, created_at FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::bigint[])
        AS given (account_id, id, message, created_at)";

const LIST_OF: &str = "SELECT id, account_id, message, created_at, sent_at FROM messages
    WHERE account_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3";

/// Statements prepared on connections for reads.
pub const READS: &[&str] = &[LIST_OF];

impl Postgres {
    pub async fn create_message(&self, message: Message, key: Option<WriteKey<Message>>) -> Result<Outcome<Message>> {
        self.messages.submit(message, key).await
    }

    /// An account's own messages, newest first: those before `before`. Reads one more than asked for, which tells if more
    /// follow.
    pub async fn list_messages_of(
        &self,
        account: AccountId,
        before: Option<MessageId>,
        limit: u32,
    ) -> Result<(Vec<TrackedMessage>, bool)> {
        let before = before.map_or(Uuid::max(), |id| Uuid::from_bytes(*id.as_bytes()));
        let rows = self.readers.query(LIST_OF, &[&account.0, &before, &(i64::from(limit) + 1)]).await?;
        let shown = rows.len().min(limit as usize);
        let listed = rows[..shown].iter().map(|row| {
            let sent_at: Option<i64> = row.try_get(4)?;
            Ok((from_row(row)?, sent_at.map(Timestamp::from_milliseconds)))
        });
        Ok((listed.collect::<Result<_>>()?, rows.len() > shown))
    }
}

impl Write for Message {
    type Output = Self;
    type Refusal = Infallible;

    fn statements() -> Vec<&'static str> {
        vec![INSERT]
    }

    fn bytes(&self) -> usize {
        self.text.as_str().len()
    }

    async fn run(
        prepared: &PreparedConnection,
        messages: Vec<Self>,
    ) -> std::result::Result<Vec<WriteResult<Self>>, Error> {
        let accounts: Vec<_> = messages.iter().map(|message| message.account.0).collect();
        let ids: Vec<_> = messages.iter().map(|message| Uuid::from_bytes(*message.id.as_bytes())).collect();
        let texts: Vec<_> = messages.iter().map(|message| message.text.as_str()).collect();
        let times: Vec<_> = messages.iter().map(|message| message.created_at.as_milliseconds()).collect();
        prepared.execute(INSERT, &[&accounts, &ids, &texts, &times]).await?;
        Ok(messages.into_iter().map(Ok).collect())
    }
}

/// Of a row that begins with id, account, text, and when the message was taken on.
pub fn from_row(row: &Row) -> Result<Message> {
    let text = MessageText::parse(row.try_get(2)?);
    Ok(Message {
        id: MessageId::from_bytes(row.try_get::<_, Uuid>(0)?.into_bytes()),
        account: AccountId(row.try_get(1)?),
        text: text.map_err(|invalid| StoreError::Failed(format!("a message {invalid}")))?,
        created_at: Timestamp::from_milliseconds(row.try_get(3)?),
    })
}
