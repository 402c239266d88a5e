//! Accounts and their sessions.

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

pub(super) const FIND_SESSION: &str =
    "SELECT s.token_hash, a.id, a.email, a.role, a.created_at, s.created_at, s.last_used_at
    FROM sessions s JOIN accounts a ON a.id = s.account_id WHERE s.token_hash = $1";

from_row!(Account { id, email, role, created_at, has_password });

from_row!(Session { hash, account, email, role, account_created_at, created_at, last_used_at });

methods! {
    /// Creates an account. `None` if its address is taken.
    async fn create_account(new: NewAccount, actor: Actor) -> Result<Option<AccountId>>;

    /// Changes the role of an account. Returns `false` if the account has been deleted.
    async fn set_role(account: AccountId, role: Role, actor: Actor) -> Result<bool>;

    async fn find_account(email: &Email) -> Result<Option<Account>>;

    /// Returns the address of an account. A deleted account has a placeholder.
    async fn find_email(account: AccountId) -> Result<Option<Email>>;

    /// Returns all accounts except deleted ones, in order of their ids.
    async fn list_accounts() -> Result<Vec<Account>>;

    /// Returns those of `accounts` that are deleted.
    async fn deleted_among(accounts: Vec<AccountId>) -> Result<Vec<AccountId>>;

    /// Returns whether any account exists that is not deleted.
    async fn has_accounts() -> Result<bool>;

    /// Returns an account and its password's digest. `None` if the address is unknown or has no password.
    async fn find_password(email: &Email) -> Result<Option<(AccountId, PasswordDigest)>>;

    /// Sets a new password, ends every session of the account and starts `session`. Changes nothing and returns `false` if
    /// the account's digest is no longer `checked`.
    async fn change_password(session: NewSession, checked: PasswordDigest, new: PasswordDigest, actor: Actor)
        -> Result<bool>;

    /// Sets a password without checking the current one, and ends every session of the account. Returns `false` if the
    /// account has been deleted.
    async fn set_password(account: AccountId, new: PasswordDigest, actor: Actor) -> Result<bool>;

    /// Erases an account's address and password, ends its sessions, revokes its keys and cancels its open orders. Its
    /// messages stay, because they were accepted for delivery.
    ///
    /// `checked` is the digest that the owner's password was checked against. `None` deletes the account without a
    /// password. Changes nothing and returns `false` if the account has another digest by now, or has been deleted
    /// already.
    async fn delete_account(account: AccountId, checked: Option<PasswordDigest>, actor: Actor) -> Result<bool>;

    /// Starts a session and deletes expired ones. Returns `false` without a session if the account's digest is no longer
    /// `checked`.
    async fn create_session(session: NewSession, checked: PasswordDigest) -> Result<bool>;

    /// Returns the session with this hash, even if it has expired.
    async fn find_session(hash: &SessionHash) -> Result<Option<Session>>;

    /// Records when a session was last used.
    async fn touch_session(hash: SessionHash, now: Timestamp) -> Result<()>;

    async fn delete_session(hash: SessionHash) -> Result<()>;
}
