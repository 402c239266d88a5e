//! Accounts.

use rusqlite::{Connection, OptionalExtension};

use crate::domain::account::PasswordDigest;
use crate::domain::{Account, AccountId, Email, Timestamp};
use crate::store::{Result, StoreError};

pub fn insert(
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

pub fn find(conn: &Connection, email: &Email) -> Result<Option<Account>> {
    let row = conn
        .prepare_cached("SELECT id, email, created_at FROM accounts WHERE email_folded = ?1")?
        .query_row([email.folded()], |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?)))
        .optional()?;
    row.map(|(id, email, created_at)| {
        Ok(Account {
            id: AccountId(id),
            email: Email::parse(&email).map_err(|error| StoreError::Failed(format!("account {id}: email {error}")))?,
            created_at: Timestamp::from_milliseconds(created_at),
        })
    })
    .transpose()
}
