//! Accounts in SQLite.

use rusqlite::{Connection, OptionalExtension, Rows};

use super::Sqlite;
use super::writer::Atomicity;
use crate::domain::account::PasswordDigest;
use crate::domain::{Account, AccountId, Email, Timestamp};
use crate::store::{Result, StoreError};

impl Sqlite {
    pub async fn create_account(
        &self,
        email: Email,
        password: Option<PasswordDigest>,
        now: Timestamp,
    ) -> Result<Option<AccountId>> {
        self.submit(Atomicity::Statement, move |batch| insert(batch, &email, password.as_ref(), now)).await
    }

    pub async fn find_account(&self, email: &Email) -> Result<Option<Account>> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached(
                "SELECT id, email, created_at, password_hash IS NOT NULL FROM accounts WHERE email_folded = ?1",
            )?;
            Ok(accounts(statement.query([email.folded()])?)?.pop())
        })
    }

    pub async fn list_accounts(&self) -> Result<Vec<Account>> {
        self.read_long(|conn| {
            let mut statement = conn.prepare_cached(
                "SELECT id, email, created_at, password_hash IS NOT NULL FROM accounts
                 WHERE deleted_at IS NULL ORDER BY id",
            )?;
            accounts(statement.query([])?)
        })
        .await
    }

    pub async fn has_accounts(&self) -> Result<bool> {
        let exist = "SELECT EXISTS (SELECT 1 FROM accounts WHERE deleted_at IS NULL)";
        self.read(|conn| Ok(conn.prepare_cached(exist)?.query_row([], |row| row.get(0))?))
    }

    pub async fn find_password(&self, email: &Email) -> Result<Option<(AccountId, PasswordDigest)>> {
        let find = "SELECT id, password_hash FROM accounts WHERE email_folded = ?1 AND password_hash IS NOT NULL";
        self.read(|conn| {
            let digest = conn
                .prepare_cached(find)?
                .query_row([email.folded()], |row| Ok((AccountId(row.get(0)?), PasswordDigest(row.get(1)?))));
            Ok(digest.optional()?)
        })
    }
}

fn insert(
    conn: &Connection,
    email: &Email,
    password: Option<&PasswordDigest>,
    now: Timestamp,
) -> Result<Option<AccountId>> {
    let inserted = conn
        .prepare_cached(
            "INSERT INTO accounts (email, email_folded, password_hash, created_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (email_folded) DO NOTHING",
        )?
        .execute((email.as_str(), email.folded(), password.map(|digest| &digest.0), now.as_milliseconds()))?;
    Ok((inserted == 1).then(|| AccountId(conn.last_insert_rowid())))
}

fn accounts(mut rows: Rows<'_>) -> Result<Vec<Account>> {
    let mut accounts = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, email): (i64, String) = (row.get(0)?, row.get(1)?);
        accounts.push(Account {
            id: AccountId(id),
            email: Email::parse(&email).map_err(|error| StoreError::Failed(format!("account {id}: email {error}")))?,
            created_at: Timestamp::from_milliseconds(row.get(2)?),
            has_password: row.get(3)?,
        });
    }
    Ok(accounts)
}
