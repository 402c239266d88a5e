//! Accounts.

use tokio_postgres::Row;

use super::Postgres;
use crate::domain::account::PasswordDigest;
use crate::domain::{Account, AccountId, Email, Timestamp};
use crate::store::{Result, StoreError};

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

pub async fn insert(
    db: &Postgres,
    email: &Email,
    password: Option<&PasswordDigest>,
    now: Timestamp,
) -> Result<Option<AccountId>> {
    let password = password.map(|digest| &*digest.0);
    let (folded, now) = (email.folded(), now.as_milliseconds());
    let rows = db.write(INSERT, &[&email.as_str(), &folded, &password, &now]).await?;
    rows.first().map(|row| Ok(AccountId(row.try_get(0)?))).transpose()
}

pub async fn find(db: &Postgres, email: &Email) -> Result<Option<Account>> {
    let rows = db.readers.query(FIND, &[&email.folded()]).await?;
    rows.first().map(account).transpose()
}

/// Returns all accounts except deleted ones, in order of their ids.
pub async fn list(db: &Postgres) -> Result<Vec<Account>> {
    db.readers.query(LIST, &[]).await?.iter().map(account).collect()
}

fn account(row: &Row) -> Result<Account> {
    let id = row.try_get(0)?;
    Ok(Account {
        id: AccountId(id),
        email: Email::parse(row.try_get(1)?)
            .map_err(|error| StoreError::Failed(format!("account {id}: email {error}")))?,
        created_at: Timestamp::from_milliseconds(row.try_get(2)?),
        has_password: row.try_get(3)?,
    })
}

/// Returns an account and its password's digest. `None` if the address is unknown or has no password.
pub async fn find_password(db: &Postgres, email: &Email) -> Result<Option<(AccountId, PasswordDigest)>> {
    let rows = db.readers.query(FIND_PASSWORD, &[&email.folded()]).await?;
    rows.first().map(|row| Ok((AccountId(row.try_get(0)?), PasswordDigest(row.try_get(1)?)))).transpose()
}

pub async fn exist(db: &Postgres) -> Result<bool> {
    let rows = db.readers.query(EXIST, &[]).await?;
    let row = rows.first().ok_or_else(|| StoreError::Failed("EXISTS returned no row".into()))?;
    Ok(row.try_get(0)?)
}
