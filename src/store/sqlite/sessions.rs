//! Sessions in SQLite, and operations that require the account's password.
//!
//! Checking a password takes long, so it happens before the transaction. The statements compare the digest that was
//! checked again and change nothing if the password has changed since.

use rusqlite::{Connection, OptionalExtension};

use super::writer::Atomicity;
use super::{Sqlite, keys, orders};
use crate::domain::account::PasswordDigest;
use crate::domain::session::{ABSOLUTE, IDLE, NewSession, SKEW};
use crate::domain::{AccountId, Email, Session, SessionHash, Timestamp};
use crate::store::{Result, StoreError};

impl Sqlite {
    pub async fn create_session(&self, session: NewSession, checked: PasswordDigest) -> Result<bool> {
        self.submit(Atomicity::Savepoint, move |batch| insert(batch, &session, &checked)).await
    }

    pub async fn find_session(&self, hash: &SessionHash) -> Result<Option<Session>> {
        self.read(|conn| find(conn, hash))
    }

    pub async fn touch_session(&self, hash: SessionHash, now: Timestamp) -> Result<()> {
        let touch = "UPDATE sessions SET last_used_at = ?2 WHERE token_hash = ?1 AND last_used_at < ?2";
        self.submit(Atomicity::Statement, move |batch| {
            batch.prepare_cached(touch)?.execute((hash.0, now.as_milliseconds()))?;
            Ok(())
        })
        .await
    }

    pub async fn delete_session(&self, hash: SessionHash) -> Result<()> {
        self.submit(Atomicity::Statement, move |batch| {
            batch.prepare_cached("DELETE FROM sessions WHERE token_hash = ?1")?.execute([hash.0])?;
            Ok(())
        })
        .await
    }

    pub async fn change_password(
        &self,
        session: NewSession,
        checked: PasswordDigest,
        new: PasswordDigest,
    ) -> Result<bool> {
        self.submit(Atomicity::Savepoint, move |batch| change_password(batch, &session, &checked, &new)).await
    }

    pub async fn set_password(&self, account: AccountId, new: PasswordDigest) -> Result<bool> {
        self.submit(Atomicity::Savepoint, move |batch| {
            let set = "UPDATE accounts SET password_hash = ?2 WHERE id = ?1 AND deleted_at IS NULL";
            let changed = batch.prepare_cached(set)?.execute((account.0, &new.0))?;
            delete_all(batch, account)?;
            Ok(changed == 1)
        })
        .await
    }

    pub async fn delete_account(
        &self,
        account: AccountId,
        checked: Option<PasswordDigest>,
        now: Timestamp,
    ) -> Result<bool> {
        self.submit(Atomicity::Savepoint, move |batch| delete_account(batch, account, checked.as_ref(), now)).await
    }
}

fn insert(conn: &Connection, session: &NewSession, checked: &PasswordDigest) -> Result<bool> {
    delete_ended(conn, session.now)?;
    let inserted = conn
        .prepare_cached(
            "INSERT INTO sessions (token_hash, account_id, created_at, last_used_at)
             SELECT ?1, id, ?3, ?3 FROM accounts WHERE id = ?2 AND password_hash = ?4",
        )?
        .execute((session.hash.0, session.account.0, session.now.as_milliseconds(), &checked.0))?;
    Ok(inserted == 1)
}

fn find(conn: &Connection, hash: &SessionHash) -> Result<Option<Session>> {
    let row = conn
        .prepare_cached(
            "SELECT a.id, a.email, a.created_at, s.created_at, s.last_used_at
             FROM sessions s JOIN accounts a ON a.id = s.account_id WHERE s.token_hash = ?1",
        )?
        .query_row([hash.0], |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
        .optional()?;
    row.map(|(account, email, account_created_at, created_at, last_used_at)| {
        Ok(Session {
            hash: *hash,
            account: AccountId(account),
            email: Email::parse(&email).map_err(|error| StoreError::Failed(format!("account {account}: {error}")))?,
            account_created_at: Timestamp::from_milliseconds(account_created_at),
            created_at: Timestamp::from_milliseconds(created_at),
            last_used_at: Timestamp::from_milliseconds(last_used_at),
        })
    })
    .transpose()
}

fn change_password(
    conn: &Connection,
    session: &NewSession,
    checked: &PasswordDigest,
    new: &PasswordDigest,
) -> Result<bool> {
    let changed = conn
        .prepare_cached("UPDATE accounts SET password_hash = ?3 WHERE id = ?1 AND password_hash = ?2")?
        .execute((session.account.0, &checked.0, &new.0))?;
    if changed == 0 {
        return Ok(false);
    }
    delete_all(conn, session.account)?;
    insert(conn, session, new)
}

/// Deletes the account if `checked` is still the digest of its password, or if `checked` is `None`.
fn delete_account(
    conn: &Connection,
    account: AccountId,
    checked: Option<&PasswordDigest>,
    now: Timestamp,
) -> Result<bool> {
    // Addresses contain no space, so nobody can sign up with the replaced `email_folded`.
    let deleted = conn
        .prepare_cached(
            "UPDATE accounts SET email = 'deleted-' || id || '@account.invalid', email_folded = 'deleted ' || id,
                 password_hash = NULL, deleted_at = ?3
             WHERE id = ?1 AND deleted_at IS NULL AND (?2 IS NULL OR password_hash = ?2)",
        )?
        .execute((account.0, checked.map(|digest| &digest.0), now.as_milliseconds()))?;
    if deleted == 0 {
        return Ok(false);
    }
    delete_all(conn, account)?;
    keys::revoke_all(conn, account, now)?;
    orders::cancel_all(conn, account, now)?;
    Ok(true)
}

fn delete_all(conn: &Connection, account: AccountId) -> Result<()> {
    conn.prepare_cached("DELETE FROM sessions WHERE account_id = ?1")?.execute([account.0])?;
    Ok(())
}

/// Deletes expired sessions, which would otherwise accumulate.
fn delete_ended(conn: &Connection, now: Timestamp) -> Result<()> {
    let (began, used, future) = (now.minus(ABSOLUTE), now.minus(IDLE), now.plus(SKEW));
    conn.prepare_cached(
        "DELETE FROM sessions WHERE created_at <= ?1 OR last_used_at <= ?2 OR created_at > ?3 OR last_used_at > ?3",
    )?
    .execute((began.as_milliseconds(), used.as_milliseconds(), future.as_milliseconds()))?;
    Ok(())
}
