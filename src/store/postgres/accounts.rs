//! Accounts.

use tokio_postgres::Row;

use super::database::Postgres;
use super::rows;
use crate::domain::account::PasswordDigest;
use crate::domain::{Account, AccountId, Email, Timestamp};
use crate::store::Result;

const INSERT: &str = "INSERT INTO accounts (email, email_folded, password_hash, created_at)
    VALUES ($1, $2, $3, $4) ON CONFLICT (email_folded) DO NOTHING RETURNING id";

const FIND_PASSWORD: &str =
    "SELECT id, password_hash FROM accounts WHERE email_folded = $1 AND password_hash IS NOT NULL";

const EXIST: &str = "SELECT EXISTS (SELECT FROM accounts WHERE deleted_at IS NULL)";

const FIND: &str = "SELECT id, email, created_at, password_hash IS NOT NULL FROM accounts WHERE email_folded = $1";

const LIST: &str = "SELECT id, email, created_at, password_hash IS NOT NULL FROM accounts
    WHERE deleted_at IS NULL ORDER BY id";

/// Statements prepared on connections for reads.
pub const READS: &[&str] = &[FIND, FIND_PASSWORD, EXIST, LIST];

/// Statements prepared on the connection for single writes.
pub const WRITES: &[&str] = &[INSERT];

impl Postgres {
    pub async fn create_account(
        &self,
        email: Email,
        password: Option<PasswordDigest>,
        now: Timestamp,
    ) -> Result<Option<AccountId>> {
        let password = password.as_ref().map(|digest| &*digest.0);
        let (folded, now) = (email.folded(), now.as_milliseconds());
        let rows = self.write(INSERT, &[&email.as_str(), &folded, &password, &now]).await?;
        rows.first().map(|row| Ok(AccountId(row.try_get(0)?))).transpose()
    }

    pub async fn find_account(&self, email: &Email) -> Result<Option<Account>> {
        let rows = self.readers.query(FIND, &[&email.folded()]).await?;
        rows.first().map(account).transpose()
    }

    pub async fn list_accounts(&self) -> Result<Vec<Account>> {
        self.readers.query(LIST, &[]).await?.iter().map(account).collect()
    }

    pub async fn find_password(&self, email: &Email) -> Result<Option<(AccountId, PasswordDigest)>> {
        let rows = self.readers.query(FIND_PASSWORD, &[&email.folded()]).await?;
        rows.first().map(|row| Ok((AccountId(row.try_get(0)?), PasswordDigest(row.try_get(1)?)))).transpose()
    }

    pub async fn has_accounts(&self) -> Result<bool> {
        let rows = self.readers.query(EXIST, &[]).await?;
        Ok(rows::only(&rows)?.try_get(0)?)
    }
}

fn account(row: &Row) -> Result<Account> {
    Ok(Account {
        id: AccountId(row.try_get(0)?),
        email: rows::email(row, 1)?,
        created_at: row.try_get(2)?,
        has_password: row.try_get(3)?,
    })
}
