//! Accounts and their sessions, on either database.

use super::{Result, Store, postgres, sqlite};
use crate::domain::account::PasswordDigest;
use crate::domain::session::NewSession;
use crate::domain::{Account, AccountId, Email, Session, SessionHash, Timestamp};

impl Store {
    /// Makes an account, or returns nothing where its address is taken.
    pub async fn create_account(
        &self,
        email: Email,
        password: Option<PasswordDigest>,
        now: Timestamp,
    ) -> Result<Option<AccountId>> {
        match self {
            Self::Sqlite(db) => {
                db.write(move |conn| sqlite::accounts::insert(conn, &email, password.as_ref(), now)).await
            }
            Self::Postgres(db) => postgres::accounts::insert(db, &email, password.as_ref(), now).await,
        }
    }

    pub async fn find_account(&self, email: &Email) -> Result<Option<Account>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::accounts::find(conn, email)),
            Self::Postgres(db) => postgres::accounts::find(db, email).await,
        }
    }

    /// Returns all accounts except deleted ones, in order of their ids.
    pub async fn list_accounts(&self) -> Result<Vec<Account>> {
        match self {
            Self::Sqlite(db) => db.read(sqlite::accounts::list),
            Self::Postgres(db) => postgres::accounts::list(db).await,
        }
    }

    /// Whether there is any account, other than deleted ones.
    pub async fn has_accounts(&self) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.read(sqlite::accounts::exist),
            Self::Postgres(db) => postgres::accounts::exist(db).await,
        }
    }

    /// An account and the digest of its password; nothing where the address is unknown or has no password.
    pub async fn find_password(&self, email: &Email) -> Result<Option<(AccountId, PasswordDigest)>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::accounts::find_password(conn, email)),
            Self::Postgres(db) => postgres::accounts::find_password(db, email).await,
        }
    }

    /// Sets a new password, ends every session of the account and begins `session`. Returns whether `checked`, the
    /// digest of the password that was shown, still is the account's; else nothing happens.
    pub async fn change_password(
        &self,
        session: NewSession,
        checked: PasswordDigest,
        new: PasswordDigest,
    ) -> Result<bool> {
        match self {
            Self::Sqlite(db) => {
                db.write_steps(move |conn| sqlite::sessions::change_password(conn, &session, &checked, &new)).await
            }
            Self::Postgres(db) => postgres::sessions::change_password(db, &session, &checked, &new).await,
        }
    }

    /// Sets a password without checking the current one, and ends every session of the account. Returns `false` if the
    /// account has been deleted.
    pub async fn set_password(&self, account: AccountId, new: PasswordDigest) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.write_steps(move |conn| sqlite::sessions::set_password(conn, account, &new)).await,
            Self::Postgres(db) => postgres::sessions::set_password(db, account, &new).await,
        }
    }

    /// Erases an account's address and password, ends its sessions, revokes its keys and cancels its open orders. Its
    /// messages stay, because they were accepted for delivery.
    ///
    /// `checked` is the digest that the owner's password was checked against. `None` deletes the account without a
    /// password. Changes nothing and returns `false` if the account has another digest by now, or has been deleted
    /// already.
    pub async fn delete_account(
        &self,
        account: AccountId,
        checked: Option<PasswordDigest>,
        now: Timestamp,
    ) -> Result<bool> {
        match self {
            Self::Sqlite(db) => {
                db.write_steps(move |conn| sqlite::sessions::delete_account(conn, account, checked.as_ref(), now)).await
            }
            Self::Postgres(db) => postgres::sessions::delete_account(db, account, checked.as_ref(), now).await,
        }
    }

    /// Begins a session, and forgets those that have ended. Returns whether `checked`, the digest of the password that
    /// was shown, still is the account's; else there is no session.
    pub async fn create_session(&self, session: NewSession, checked: PasswordDigest) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.write_steps(move |conn| sqlite::sessions::insert(conn, &session, &checked)).await,
            Self::Postgres(db) => postgres::sessions::insert(db, &session, &checked).await,
        }
    }

    /// The session with this hash, whether or not it still lasts.
    pub async fn find_session(&self, hash: &SessionHash) -> Result<Option<Session>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::sessions::find(conn, hash)),
            Self::Postgres(db) => postgres::sessions::find(db, hash).await,
        }
    }

    /// Notes when a session was last used.
    pub async fn touch_session(&self, hash: SessionHash, now: Timestamp) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.write(move |conn| sqlite::sessions::touch(conn, &hash, now)).await,
            Self::Postgres(db) => postgres::sessions::touch(db, &hash, now).await,
        }
    }

    pub async fn delete_session(&self, hash: SessionHash) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.write(move |conn| sqlite::sessions::delete(conn, &hash)).await,
            Self::Postgres(db) => postgres::sessions::delete(db, &hash).await,
        }
    }
}
