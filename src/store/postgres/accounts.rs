//! Accounts.

use tokio_postgres::Row;

use super::Postgres;
use crate::domain::account::PasswordDigest;
use crate::domain::{Account, AccountId, Email, Timestamp};
use crate::store::{Result, StoreError};

pub const INSERT: &str = "INSERT INTO accounts (email, email_folded, password_hash, created_at)
    VALUES ($1, $2, $3, $4) ON CONFLICT (email_folded) DO NOTHING RETURNING id";

pub const FIND_PASSWORD: &str =
    "SELECT id, password_hash FROM accounts WHERE email_folded = $1 AND password_hash IS NOT NULL";

pub const EXIST: &str = "SELECT EXISTS (SELECT FROM accounts WHERE deleted_at IS NULL)";

pub const FIND: &str = "SELECT id, email, created_at, password_hash IS NOT NULL FROM accounts WHERE email_folded = $1";

pub const LIST: &str = "SELECT id, email, created_at, password_hash IS NOT NULL FROM accounts
    WHERE deleted_at IS NULL ORDER BY id";

pub async fn insert(
    db: &Postgres,
    email: &Email,
    password: Option<&PasswordDigest>,
    now: Timestamp,
) -> Result<Option<AccountId>> {
    let password = password.map(|digest| &*digest.0);
    let (folded, now) = (email.folded(), now.as_milliseconds());
    let rows = db.write(|known| &known.insert_account, &[&email.as_str(), &folded, &password, &now]).await?;
    rows.first().map(|row| Ok(AccountId(row.try_get(0)?))).transpose()
}

pub async fn find(db: &Postgres, email: &Email) -> Result<Option<Account>> {
    let rows = db.readers.query(|known| &known.find_account, &[&email.folded()]).await?;
    rows.first().map(account).transpose()
}

/// Returns all accounts except deleted ones, in order of their ids.
pub async fn list(db: &Postgres) -> Result<Vec<Account>> {
    db.readers.query(|known| &known.list_accounts, &[]).await?.iter().map(account).collect()
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

/// An account by its address, and its password's digest; nothing where the account has none.
pub async fn find_password(db: &Postgres, email: &Email) -> Result<Option<(AccountId, PasswordDigest)>> {
    let rows = db.readers.query(|known| &known.find_password, &[&email.folded()]).await?;
    rows.first().map(|row| Ok((AccountId(row.try_get(0)?), PasswordDigest(row.try_get(1)?)))).transpose()
}

pub async fn exist(db: &Postgres) -> Result<bool> {
    let rows = db.readers.query(|known| &known.accounts_exist, &[]).await?;
    let row = rows.first().ok_or_else(|| StoreError::Failed("nothing was said of accounts".into()))?;
    Ok(row.try_get(0)?)
}
