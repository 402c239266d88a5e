//! Messages.

use tokio_postgres::Error;

use super::session::Session;
use super::writer::Write;
use crate::domain::Message;

pub const INSERT: &str = "INSERT INTO messages (id, account_id, message, created_at)
    SELECT id, account_id, message, created_at FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::bigint[])
        WITH ORDINALITY AS given (id, account_id, message, created_at, position)
    ORDER BY position";

impl Write for Message {
    type Answer = ();

    fn bytes(&self) -> usize {
        self.text.as_str().len()
    }

    async fn run(session: &Session, batch: &[Self]) -> std::result::Result<Vec<()>, Error> {
        let ids: Vec<_> = batch.iter().map(|message| uuid::Uuid::from_bytes(*message.id.as_bytes())).collect();
        let accounts: Vec<_> = batch.iter().map(|message| message.account.0).collect();
        let texts: Vec<_> = batch.iter().map(|message| message.text.as_str()).collect();
        let times: Vec<_> = batch.iter().map(|message| message.created_at.as_milliseconds()).collect();
        let insert = &session.statements.insert_messages;
        session.connection.client.execute(insert, &[&ids, &accounts, &texts, &times]).await?;
        Ok(vec![(); batch.len()])
    }
}
