//! Accounts.

use super::Postgres;
use crate::domain::account::PasswordDigest;
use crate::domain::{Account, AccountId, Email, Timestamp};
use crate::store::{Result, StoreError};

pub const INSERT: &str = "INSERT INTO accounts (email, email_folded, password_hash, created_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (email_folded) DO NOTHING RETURNING id";

pub const FIND: &str = "SELECT id, email, created_at FROM accounts WHERE email_folded = $1";

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
    let Some(row) = rows.first() else { return Ok(None) };
    let id = row.try_get(0)?;
    Ok(Some(Account {
        id: AccountId(id),
        email: Email::parse(row.try_get(1)?)
            .map_err(|error| StoreError::Failed(format!("account {id}: email {error}")))?,
        created_at: Timestamp::from_milliseconds(row.try_get(2)?),
    }))
}
