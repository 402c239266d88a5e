//! Accounts and their sessions.
//!
//! Passwords are checked outside of transactions, because hashing is slow. A statement therefore compares the digest that was
//! checked, and does nothing if the password has changed since.

use super::statement::{Parameters, Sql, both, id_list};
use super::transaction::Transaction;
use super::{Result, Store, StoreError, audit, keys, orders};
use crate::domain::account::{PSEUDONYMS, PasswordDigest};
use crate::domain::session::{ABSOLUTE, IDLE, NewSession, SKEW};
use crate::domain::{
    Account, AccountId, Action, Actor, Email, KeyHash, NewAccount, Role, Session, SessionHash, Timestamp,
};

macro_rules! select {
    ($clauses:literal) => {
        concat!("SELECT id, email, role, created_at, password_hash IS NOT NULL, suspended_at FROM accounts ", $clauses)
    };
}

/// The parameters are [`Email::lower_case`] and [`Email::folded`].
const FIND: Sql = both(select!("WHERE email_folded IN ($1, $2) ORDER BY email_folded <> $1 LIMIT 1"));

const LIST: Sql = both(select!("WHERE deleted_at IS NULL ORDER BY id"));

const EXIST: Sql = both("SELECT id FROM accounts WHERE deleted_at IS NULL LIMIT 1");

pub(super) const FIND_EMAIL: Sql = both("SELECT email FROM accounts WHERE id = $1");

const FIND_PASSWORD: Sql = both(
    "SELECT id, password_hash FROM (SELECT id, password_hash FROM accounts WHERE email_folded IN ($1, $2)
    ORDER BY email_folded <> $1 LIMIT 1) AS found WHERE password_hash IS NOT NULL",
);

const FIND_DELETED: Sql = among!("SELECT id FROM accounts WHERE deleted_at IS NOT NULL AND id", "$1");

const FIND_SESSION: Sql = both(
    "SELECT s.token_hash, a.id, a.email, a.role, a.created_at, s.created_at, s.last_used_at
    FROM sessions s JOIN accounts a ON a.id = s.account_id WHERE s.token_hash = $1 AND a.suspended_at IS NULL",
);

/// Locks the account's row against other changes of it, but permits new rows that refer to it.
const LOCK: Sql = locking!("SELECT email FROM accounts WHERE id = $1 AND deleted_at IS NULL", "FOR NO KEY UPDATE");

/// Locks the account's row against other changes of it and against new rows that refer to it.
const LOCK_WITH_REFERENCES: Sql =
    locking!("SELECT email FROM accounts WHERE id = $1 AND deleted_at IS NULL", "FOR UPDATE");

const LIST_SESSIONS: Sql =
    both("SELECT created_at, last_used_at FROM sessions WHERE account_id = $1 ORDER BY created_at");

/// Deletes expired sessions, which otherwise accumulate.
const DELETE_ENDED: Sql = Sql {
    sqlite: "DELETE FROM sessions WHERE created_at <= $1 OR last_used_at <= $2 OR created_at > $3 OR last_used_at > $3",
    postgres: "DELETE FROM sessions WHERE token_hash IN (
        SELECT token_hash FROM sessions
        WHERE created_at <= $1 OR last_used_at <= $2 OR created_at > $3 OR last_used_at > $3
        FOR UPDATE SKIP LOCKED)",
};

/// Locks the account's row, so that no session starts with a password that is being changed.
const BEGIN_SESSION: Sql = locking!(
    "INSERT INTO sessions (token_hash, account_id, created_at, last_used_at)
        SELECT $1, id, $2, $2 FROM accounts WHERE id = $3 AND password_hash = $4 AND suspended_at IS NULL
            AND password_temporary = 0",
    "FOR SHARE",
    "RETURNING account_id"
);

const TOUCH_SESSION: Sql = both("UPDATE sessions SET last_used_at = $1 WHERE token_hash = $2 AND last_used_at < $1");

const DELETE_SESSION: Sql = both("DELETE FROM sessions WHERE token_hash = $1");

const FIND_LINK: Sql =
    both(select!("WHERE link_hash = $1 AND link_until > $2 AND deleted_at IS NULL AND suspended_at IS NULL"));

/// Statements that each connection of PostgreSQL for reads or single writes prepares.
pub const STATEMENTS: &[Sql] = &[
    FIND, FIND_EMAIL, FIND_LINK, FIND_PASSWORD, EXIST, LIST, FIND_DELETED, FIND_SESSION, LIST_SESSIONS, DELETE_ENDED,
    BEGIN_SESSION, TOUCH_SESSION, DELETE_SESSION,
];

from_row!(Account { id, email, role, created_at, has_password, suspended_at });

from_row!(Session { hash, account, email, role, account_created_at, created_at, last_used_at });

impl Store {
    pub async fn find_account(&self, email: &Email) -> Result<Option<Account>> {
        self.first(FIND, &[&email.lower_case(), &email.folded()]).await
    }

    /// Returns the account whose owner may choose a password by the link with this hash. `None` if it has expired or was used.
    pub async fn find_link(&self, hash: &KeyHash, now: Timestamp) -> Result<Option<Account>> {
        self.first(FIND_LINK, &[hash, &now]).await
    }

    /// Returns the address of an account. A deleted account has a placeholder.
    pub async fn find_email(&self, account: AccountId) -> Result<Option<String>> {
        Ok(self.first(FIND_EMAIL, &[&account]).await?.map(|(email,)| email))
    }

    /// Returns all accounts except deleted ones, in order of their ids.
    pub async fn list_accounts(&self) -> Result<Vec<Account>> {
        self.all(LIST, &[]).await
    }

    /// Returns those of `accounts` that are deleted.
    pub async fn deleted_among(&self, accounts: Vec<AccountId>) -> Result<Vec<AccountId>> {
        let deleted = self.all(FIND_DELETED, &[&id_list(accounts.iter().map(|account| account.0))]).await?;
        Ok(deleted.into_iter().map(|(id,)| id).collect())
    }

    /// Returns whether any account exists that is not deleted.
    pub async fn has_accounts(&self) -> Result<bool> {
        Ok(self.first::<()>(EXIST, &[]).await?.is_some())
    }

    /// Returns an account and its password's digest. `None` if the address is unknown or has no password.
    pub async fn find_password(&self, email: &Email) -> Result<Option<(AccountId, PasswordDigest)>> {
        self.first(FIND_PASSWORD, &[&email.lower_case(), &email.folded()]).await
    }

    /// Starts a session and deletes expired ones. Returns `false` without a session if the account's digest is no longer
    /// `checked`, or the account is suspended or has a temporary password.
    pub async fn create_session(&self, session: NewSession, checked: PasswordDigest) -> Result<bool> {
        let NewSession { hash, account, now } = session;
        let ended: Parameters<'_> = &[&now.minus(ABSOLUTE), &now.minus(IDLE), &now.plus(SKEW)];
        let begin: Parameters<'_> = &[&hash, &now, &account, &checked];
        let (_, begun) =
            tokio::try_join!(self.write::<()>(DELETE_ENDED, ended), self.write::<()>(BEGIN_SESSION, begin))?;
        Ok(!begun.is_empty())
    }

    /// Returns the session with this hash, even if it has expired. `None` if its account is suspended.
    pub async fn find_session(&self, hash: &SessionHash) -> Result<Option<Session>> {
        self.first(FIND_SESSION, &[hash]).await
    }

    /// Returns when each session of an account was started and last used. They may have expired.
    pub async fn list_sessions(&self, account: AccountId) -> Result<Vec<(Timestamp, Timestamp)>> {
        self.all(LIST_SESSIONS, &[&account]).await
    }

    /// Records when a session was last used.
    pub async fn touch_session(&self, hash: SessionHash, now: Timestamp) -> Result<()> {
        self.write::<()>(TOUCH_SESSION, &[&now, &hash]).await.map(drop)
    }

    pub async fn delete_session(&self, hash: SessionHash) -> Result<()> {
        self.write::<()>(DELETE_SESSION, &[&hash]).await.map(drop)
    }
}

transactions! { Savepoint, Unlisted:
    /// Creates an account. `None` if its address is taken or reserved.
    async fn create_account(new: NewAccount, actor: Actor) -> Result<Option<AccountId>>;

    /// Changes the role of an account. Returns `false` if the account has been deleted.
    async fn set_role(account: AccountId, role: Role, actor: Actor) -> Result<bool>;

    /// Suspends an account, so that it has no valid key, session or link, or resumes it. Returns `false` if the account has
    /// been deleted.
    async fn set_suspended(account: AccountId, suspended: bool, actor: Actor) -> Result<bool>;

    /// Creates the link that works until a time, and ends an earlier one. Returns `false` if the account has been deleted or
    /// is suspended. With `checked`, also if that is not the digest of its temporary password.
    async fn create_link(account: AccountId, hash: KeyHash, until: Timestamp, checked: Option<PasswordDigest>, actor: Actor)
        -> Result<bool>;

    /// Changes the address of an account, also in the audit. Returns `false` if the account has been deleted. Fails if another
    /// account has the address, and with [`StoreError::Refused`] if it is reserved.
    async fn set_email(account: AccountId, new: Email, actor: Actor) -> Result<bool>;
}

transactions! { Batch, Unlisted:
    /// Sets a new password, ends every session of the account and starts `session`. Changes nothing and returns `false` if
    /// the account's digest is no longer `checked`.
    async fn change_password(session: NewSession, checked: PasswordDigest, new: PasswordDigest, actor: Actor)
        -> Result<bool>;

    /// Sets a password without checking the current one, and ends every session of the account. Returns `false` if the
    /// account has been deleted. With a temporary password, no session begins.
    async fn set_password(account: AccountId, new: PasswordDigest, is_temporary: bool, actor: Actor) -> Result<bool>;

    /// Uses a link up: sets a password, and ends every session of the account. Returns `false` if the link has expired or was
    /// used.
    async fn use_link(hash: KeyHash, new: PasswordDigest, now: Timestamp, actor: Actor) -> Result<bool>;
}

transactions! { Batch, Any:
    /// Erases an account's address and password, ends its sessions, revokes its keys and cancels its open orders. Its
    /// messages stay, because they were accepted for delivery.
    ///
    /// `checked` is the digest that the owner's password was checked against. `None` deletes the account without a
    /// password. Changes nothing and returns `false` if the account has another digest by now, or has been deleted
    /// already.
    async fn delete_account(account: AccountId, checked: Option<PasswordDigest>, actor: Actor) -> Result<bool>;

    /// Deletes an account without a password, and its messages, keys and stored responses, and replaces its address in the
    /// audit. Changes nothing and returns `false` if some messages are not sent, unless `discard_messages`. `None` if the
    /// account has been deleted already.
    async fn erase_account(account: AccountId, discard_messages: bool, actor: Actor) -> Result<Option<bool>>;
}

async fn create_account(tx: &impl Transaction, new: NewAccount, actor: Actor) -> Result<Option<AccountId>> {
    let insert = both(
        "INSERT INTO accounts (email, email_folded, password_hash, role, created_at)
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT (email_folded) DO NOTHING RETURNING id",
    );
    let NewAccount { email, password, role } = new;
    if email.is_reserved() {
        return Ok(None);
    }
    let inserted = tx.first(insert, &[&email, &email.folded(), &password, &role, &actor.at]).await?;
    let Some((id,)) = inserted else { return Ok(None) };
    tx.record(&actor, Action::CreateAccount, &email.with_role(role)).await?;
    Ok(Some(id))
}

async fn set_role(tx: &impl Transaction, account: AccountId, role: Role, actor: Actor) -> Result<bool> {
    let Some((email,)) = tx.first::<(Email,)>(LOCK, &[&account]).await? else { return Ok(false) };
    let set = both("UPDATE accounts SET role = $1 WHERE id = $2 AND role <> $1");
    if tx.execute(set, &[&role, &account]).await? > 0 {
        tx.record(&actor, Action::SetRole, &email.with_role(role)).await?;
        keys::note_change(tx).await?;
    }
    Ok(true)
}

async fn set_suspended(tx: &impl Transaction, account: AccountId, suspended: bool, actor: Actor) -> Result<bool> {
    let Some((email,)) = tx.first::<(Email,)>(LOCK, &[&account]).await? else { return Ok(false) };
    let set = both(
        "UPDATE accounts SET suspended_at = $1, link_hash = NULL
        WHERE id = $2 AND (suspended_at IS NULL) <> (CAST($1 AS bigint) IS NULL)",
    );
    if tx.execute(set, &[&suspended.then_some(actor.at), &account]).await? > 0 {
        end_sessions(tx, account).await?;
        let action = if suspended { Action::SuspendAccount } else { Action::ResumeAccount };
        tx.record(&actor, action, email.as_str()).await?;
        keys::note_change(tx).await?;
    }
    Ok(true)
}

async fn set_email(tx: &impl Transaction, account: AccountId, new: Email, actor: Actor) -> Result<bool> {
    if new.is_reserved() {
        return Err(StoreError::Refused(format!("no account may have the address {}", new.as_str())));
    }
    let Some((old,)) = tx.first::<(Email,)>(LOCK_WITH_REFERENCES, &[&account]).await? else { return Ok(false) };
    let set = both("UPDATE accounts SET email = $1, email_folded = $2, link_hash = NULL WHERE id = $3");
    tx.execute(set, &[&new, &new.folded(), &account]).await?;
    audit::rename(tx, account, &old, &new).await?;
    tx.record(&actor, Action::SetEmail, &format!("{} to {}", old.as_str(), new.as_str())).await?;
    Ok(true)
}

async fn change_password(
    tx: &impl Transaction,
    session: NewSession,
    checked: PasswordDigest,
    new: PasswordDigest,
    actor: Actor,
) -> Result<bool> {
    let NewSession { hash, account, now } = session;
    let change = both(
        "UPDATE accounts SET password_hash = $1, link_hash = NULL
        WHERE id = $2 AND password_hash = $3 AND suspended_at IS NULL AND password_temporary = 0 RETURNING id, email",
    );
    let is_changed = set_password_by(tx, change, &[&new, &account, &checked], &actor).await?;
    if is_changed {
        tx.first::<()>(BEGIN_SESSION, &[&hash, &now, &account, &new]).await?;
    }
    Ok(is_changed)
}

async fn set_password(
    tx: &impl Transaction,
    account: AccountId,
    new: PasswordDigest,
    is_temporary: bool,
    actor: Actor,
) -> Result<bool> {
    let set = both(
        "UPDATE accounts SET password_hash = $1, password_temporary = $2, link_hash = NULL
        WHERE id = $3 AND deleted_at IS NULL RETURNING id, email",
    );
    set_password_by(tx, set, &[&new, &i16::from(is_temporary), &account], &actor).await
}

async fn create_link(
    tx: &impl Transaction,
    account: AccountId,
    hash: KeyHash,
    until: Timestamp,
    checked: Option<PasswordDigest>,
    actor: Actor,
) -> Result<bool> {
    let create = both(
        "UPDATE accounts SET link_hash = $1, link_until = $2
        WHERE id = $3 AND deleted_at IS NULL AND suspended_at IS NULL
            AND (CAST($4 AS text) IS NULL OR password_hash = $4 AND password_temporary = 1)
        RETURNING email",
    );
    let created: Option<(Email,)> = tx.first(create, &[&hash, &until, &account, &checked]).await?;
    let Some((email,)) = created else { return Ok(false) };
    tx.record(&actor, Action::CreateLink, email.as_str()).await?;
    Ok(true)
}

async fn use_link(
    tx: &impl Transaction,
    hash: KeyHash,
    new: PasswordDigest,
    now: Timestamp,
    actor: Actor,
) -> Result<bool> {
    let set = both(
        "UPDATE accounts SET password_hash = $1, password_temporary = 0, link_hash = NULL
        WHERE link_hash = $2 AND link_until > $3 AND deleted_at IS NULL AND suspended_at IS NULL RETURNING id, email",
    );
    set_password_by(tx, set, &[&new, &hash, &now], &actor).await
}

/// Sets a password by a statement that returns the account, and ends every session of the account. Returns `false` if the
/// statement changes no account.
async fn set_password_by(tx: &impl Transaction, set: Sql, parameters: Parameters<'_>, actor: &Actor) -> Result<bool> {
    let Some((account, email)) = tx.first::<(AccountId, Email)>(set, parameters).await? else { return Ok(false) };
    tx.record(actor, Action::SetPassword, email.as_str()).await?;
    end_sessions(tx, account).await?;
    Ok(true)
}

async fn delete_account(
    tx: &impl Transaction,
    account: AccountId,
    checked: Option<PasswordDigest>,
    actor: Actor,
) -> Result<bool> {
    let find = locking!(
        "SELECT email FROM accounts
        WHERE id = $1 AND deleted_at IS NULL AND (CAST($2 AS text) IS NULL OR password_hash = $2)",
        "FOR UPDATE"
    );
    let Some((email,)) = tx.first::<(Email,)>(find, &[&account, &checked]).await? else { return Ok(false) };
    end(tx, account, &email, "deleted", &actor).await?;
    tx.record(&actor, Action::DeleteAccount, email.as_str()).await?;
    // Last, because every change of any key waits for this row.
    keys::note_change(tx).await?;
    Ok(true)
}

async fn erase_account(
    tx: &impl Transaction,
    account: AccountId,
    discard_messages: bool,
    actor: Actor,
) -> Result<Option<bool>> {
    let Some((email,)) = tx.first::<(Email,)>(LOCK_WITH_REFERENCES, &[&account]).await? else { return Ok(None) };
    let unsent = both("SELECT id FROM messages WHERE account_id = $1 AND sent_at IS NULL LIMIT 1");
    if !discard_messages && tx.first::<()>(unsent, &[&account]).await?.is_some() {
        return Ok(Some(false));
    }
    end(tx, account, &email, "erased", &actor).await?;
    // Waits for those who discard messages, whose rows of the audit have the address.
    tx.execute(both("DELETE FROM messages WHERE account_id = $1"), &[&account]).await?;
    tx.execute(both("DELETE FROM idempotency_records WHERE account_id = $1"), &[&account]).await?;
    audit::erase(tx, account, &email).await?;
    tx.execute(both("DELETE FROM api_keys WHERE account_id = $1"), &[&account]).await?;
    tx.record(&actor, Action::EraseAccount, &account.pseudonym()).await?;
    keys::note_change(tx).await?;
    Ok(Some(true))
}

/// Ends an account whose row is locked. Its address becomes one that begins with `word`.
async fn end(tx: &impl Transaction, account: AccountId, email: &Email, word: &str, actor: &Actor) -> Result<()> {
    let set = both(
        "UPDATE accounts SET email = $1, email_folded = $2, password_hash = NULL, link_hash = NULL, deleted_at = $3
        WHERE id = $4",
    );
    // Addresses contain no space, so nobody can sign up with the replaced `email_folded`.
    let (ended, folded) = (format!("{word}-{}{PSEUDONYMS}", account.0), format!("{word} {}", account.0));
    tx.execute(set, &[&ended, &folded, &actor.at, &account]).await?;
    end_sessions(tx, account).await?;
    keys::revoke_all(tx, account, email, actor).await?;
    orders::cancel_all(tx, account, email, actor).await
}

async fn end_sessions(tx: &impl Transaction, account: AccountId) -> Result<()> {
    tx.execute(both("DELETE FROM sessions WHERE account_id = $1"), &[&account]).await.map(drop)
}
