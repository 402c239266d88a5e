//! Accounts and their sessions.

use super::row::{FromRow, Row};
use super::{Result, Store};
use crate::domain::account::PasswordDigest;
use crate::domain::session::NewSession;
use crate::domain::{Account, AccountId, Actor, Email, NewAccount, Role, Session, SessionHash, Timestamp};

macro_rules! select {
    ($clauses:literal) => {
        concat!("SELECT id, email, role, created_at, password_hash IS NOT NULL FROM accounts ", $clauses)
    };
}

pub(super) mod postgres;
pub(super) mod postgres_sessions;
mod sqlite;
mod sqlite_sessions;

/// The parameters are [`Email::lower_case`] and [`Email::folded`].
pub(super) const FIND: &str = select!("WHERE email_folded IN ($1, $2) ORDER BY email_folded <> $1 LIMIT 1");

pub(super) const LIST: &str = select!("WHERE deleted_at IS NULL ORDER BY id");

pub(super) const FIND_EMAIL: &str = "SELECT email FROM accounts WHERE id = $1";

pub(super) const FIND_PASSWORD: &str =
    "SELECT id, password_hash FROM (SELECT id, password_hash FROM accounts WHERE email_folded IN ($1, $2)
    ORDER BY email_folded <> $1 LIMIT 1) AS found WHERE password_hash IS NOT NULL";

pub(super) const FIND_SESSION: &str = "SELECT a.id, a.email, a.role, a.created_at, s.created_at, s.last_used_at
    FROM sessions s JOIN accounts a ON a.id = s.account_id WHERE s.token_hash = $1";

impl FromRow for Account {
    fn from_row<R: Row>(row: &R) -> std::result::Result<Self, R::Error> {
        Ok(Self {
            id: AccountId(row.column(0)?),
            email: row.column(1)?,
            role: row.column(2)?,
            created_at: row.column(3)?,
            has_password: row.column(4)?,
        })
    }
}

pub(super) fn session<R: Row>(hash: SessionHash, row: &R) -> std::result::Result<Session, R::Error> {
    Ok(Session {
        hash,
        account: AccountId(row.column(0)?),
        email: row.column(1)?,
        role: row.column(2)?,
        account_created_at: row.column(3)?,
        created_at: row.column(4)?,
        last_used_at: row.column(5)?,
    })
}

impl Store {
    /// Creates an account. `None` if its address is taken.
    pub async fn create_account(&self, new: NewAccount, actor: Actor) -> Result<Option<AccountId>> {
        dispatch!(self, db => db.create_account(new, actor).await)
    }

    /// Changes the role of an account. Returns `false` if the account has been deleted.
    pub async fn set_role(&self, account: AccountId, role: Role, actor: Actor) -> Result<bool> {
        dispatch!(self, db => db.set_role(account, role, actor).await)
    }

    pub async fn find_account(&self, email: &Email) -> Result<Option<Account>> {
        dispatch!(self, db => db.find_account(email).await)
    }

    /// Returns the address of an account. A deleted account has a placeholder.
    pub async fn find_email(&self, account: AccountId) -> Result<Option<Email>> {
        dispatch!(self, db => db.find_email(account).await)
    }

    /// Returns all accounts except deleted ones, in order of their ids.
    pub async fn list_accounts(&self) -> Result<Vec<Account>> {
        dispatch!(self, db => db.list_accounts().await)
    }

    /// Returns those of `accounts` that are deleted.
    pub async fn deleted_among(&self, accounts: Vec<AccountId>) -> Result<Vec<AccountId>> {
        dispatch!(self, db => db.deleted_among(accounts).await)
    }

    /// Returns whether any account exists that is not deleted.
    pub async fn has_accounts(&self) -> Result<bool> {
        dispatch!(self, db => db.has_accounts().await)
    }

    /// Returns an account and its password's digest. `None` if the address is unknown or has no password.
    pub async fn find_password(&self, email: &Email) -> Result<Option<(AccountId, PasswordDigest)>> {
        dispatch!(self, db => db.find_password(email).await)
    }

    /// Sets a new password, ends every session of the account and starts `session`. Changes nothing and returns `false` if
    /// the account's digest is no longer `checked`.
    pub async fn change_password(
        &self,
        session: NewSession,
        checked: PasswordDigest,
        new: PasswordDigest,
        actor: Actor,
    ) -> Result<bool> {
        dispatch!(self, db => db.change_password(session, checked, new, actor).await)
    }

    /// Sets a password without checking the current one, and ends every session of the account. Returns `false` if the
    /// account has been deleted.
    pub async fn set_password(&self, account: AccountId, new: PasswordDigest, actor: Actor) -> Result<bool> {
        dispatch!(self, db => db.set_password(account, new, actor).await)
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
        actor: Actor,
    ) -> Result<bool> {
        dispatch!(self, db => db.delete_account(account, checked, actor).await)
    }

    /// Starts a session and deletes expired ones. Returns `false` without a session if the account's digest is no longer
    /// `checked`.
    pub async fn create_session(&self, session: NewSession, checked: PasswordDigest) -> Result<bool> {
        dispatch!(self, db => db.create_session(session, checked).await)
    }

    /// Returns the session with this hash, even if it has expired.
    pub async fn find_session(&self, hash: &SessionHash) -> Result<Option<Session>> {
        dispatch!(self, db => db.find_session(hash).await)
    }

    /// Records when a session was last used.
    pub async fn touch_session(&self, hash: SessionHash, now: Timestamp) -> Result<()> {
        dispatch!(self, db => db.touch_session(hash, now).await)
    }

    pub async fn delete_session(&self, hash: SessionHash) -> Result<()> {
        dispatch!(self, db => db.delete_session(hash).await)
    }
}
