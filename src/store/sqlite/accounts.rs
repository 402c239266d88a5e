//! Accounts in SQLite.

use rusqlite::Row;

use super::history::Effect;
use super::job::Atomicity;
use super::{Sqlite, rows};
use crate::domain::account::PasswordDigest;
use crate::domain::{Account, AccountId, Email, Timestamp};
use crate::store::Result;

const INSERT: &str = "INSERT INTO accounts (email, email_folded, password_hash, created_at) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (email_folded) DO NOTHING";

const FIND: &str = "SELECT id, email, created_at, password_hash IS NOT NULL FROM accounts WHERE email_folded = ?1";

const LIST: &str = "SELECT id, email, created_at, password_hash IS NOT NULL FROM accounts
    WHERE deleted_at IS NULL ORDER BY id";

const EXIST: &str = "SELECT 1 FROM accounts WHERE deleted_at IS NULL LIMIT 1";

const FIND_PASSWORD: &str =
    "SELECT id, password_hash FROM accounts WHERE email_folded = ?1 AND password_hash IS NOT NULL";

impl Sqlite {
    pub async fn create_account(
        &self,
        email: Email,
        password: Option<PasswordDigest>,
        now: Timestamp,
    ) -> Result<Option<AccountId>> {
        self.submit(Atomicity::Statement, Effect::Unlisted, move |conn| {
            let password = password.map(|digest| digest.0);
            let inserted = conn.execute(INSERT, (email.as_str(), email.folded(), password, now.as_milliseconds()))?;
            Ok((inserted == 1).then(|| AccountId(conn.last_insert_rowid())))
        })
        .await
    }

    pub async fn find_account(&self, email: &Email) -> Result<Option<Account>> {
        self.read(|conn| rows::first(conn, FIND, [email.folded()], from_row))
    }

    pub async fn list_accounts(&self) -> Result<Vec<Account>> {
        self.read_long(|conn| rows::all(conn, LIST, [], from_row)).await
    }

    pub async fn has_accounts(&self) -> Result<bool> {
        self.read(|conn| Ok(rows::first(conn, EXIST, [], |_| Ok(()))?.is_some()))
    }

    pub async fn find_password(&self, email: &Email) -> Result<Option<(AccountId, PasswordDigest)>> {
        self.read(|conn| {
            rows::first(conn, FIND_PASSWORD, [email.folded()], |row| {
                Ok((AccountId(row.get(0)?), PasswordDigest(row.get(1)?)))
            })
        })
    }
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Account> {
    Ok(Account { id: AccountId(row.get(0)?), email: row.get(1)?, created_at: row.get(2)?, has_password: row.get(3)? })
}
