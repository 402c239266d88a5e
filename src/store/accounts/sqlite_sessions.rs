//! Sessions in SQLite, and operations that require the account's password.
//!
//! Checking a password takes long, so it happens before the transaction. The statements compare the digest that was
//! checked again and change nothing if the password has changed since.

use rusqlite::Row;

use crate::domain::account::PasswordDigest;
use crate::domain::session::{ABSOLUTE, IDLE, NewSession, SKEW};
use crate::domain::{AccountId, Action, Actor, Email, Session, SessionHash, Timestamp};
use crate::store::Result;
use crate::store::accounts::FIND_SESSION;
use crate::store::audit;
use crate::store::keys;
use crate::store::orders;
use crate::store::sqlite::{Atomicity, Effect, Sqlite, WriteConnection, rows};

const INSERT: &str = "INSERT INTO sessions (token_hash, account_id, created_at, last_used_at)
    SELECT ?1, id, ?3, ?3 FROM accounts WHERE id = ?2 AND password_hash = ?4";

const TOUCH: &str = "UPDATE sessions SET last_used_at = ?2 WHERE token_hash = ?1 AND last_used_at < ?2";

const DELETE_ENDED: &str =
    "DELETE FROM sessions WHERE created_at <= ?1 OR last_used_at <= ?2 OR created_at > ?3 OR last_used_at > ?3";

const FIND_DELETABLE: &str = "SELECT email FROM accounts
    WHERE id = ?1 AND deleted_at IS NULL AND (?2 IS NULL OR password_hash = ?2)";

/// Addresses contain no space, so nobody can sign up with the replaced `email_folded`.
const DELETE_ACCOUNT: &str =
    "UPDATE accounts SET email = 'deleted-' || id || '@account.invalid', email_folded = 'deleted ' || id,
        password_hash = NULL, deleted_at = ?2
    WHERE id = ?1";

impl Sqlite {
    pub async fn create_session(&self, session: NewSession, checked: PasswordDigest) -> Result<bool> {
        self.submit(Atomicity::Batch, Effect::Unlisted, move |conn| insert(conn, &session, &checked)).await
    }

    pub async fn find_session(&self, hash: &SessionHash) -> Result<Option<Session>> {
        self.read(|conn| rows::first(conn, FIND_SESSION, [hash.0], rows::read))
    }

    pub async fn touch_session(&self, hash: SessionHash, now: Timestamp) -> Result<()> {
        let params = (hash.0, now.as_milliseconds());
        self.submit(Atomicity::Statement, Effect::Unlisted, move |conn| Ok(conn.execute(TOUCH, params).map(drop)?))
            .await
    }

    pub async fn delete_session(&self, hash: SessionHash) -> Result<()> {
        let delete = "DELETE FROM sessions WHERE token_hash = ?1";
        self.submit(Atomicity::Statement, Effect::Unlisted, move |conn| Ok(conn.execute(delete, [hash.0]).map(drop)?))
            .await
    }

    pub async fn change_password(
        &self,
        session: NewSession,
        checked: PasswordDigest,
        new: PasswordDigest,
        actor: Actor,
    ) -> Result<bool> {
        self.submit(Atomicity::Batch, Effect::Unlisted, move |conn| {
            let change = "UPDATE accounts SET password_hash = ?3 WHERE id = ?1 AND password_hash = ?2 RETURNING email";
            let changed = (session.account.0, &checked.0, &new.0);
            let Some(email) = conn.find(change, changed, email)? else { return Ok(false) };
            audit::sqlite::record(conn, &actor, Action::SetPassword, email.as_str())?;
            delete_all(conn, session.account)?;
            insert(conn, &session, &new)
        })
        .await
    }

    pub async fn set_password(&self, account: AccountId, new: PasswordDigest, actor: Actor) -> Result<bool> {
        self.submit(Atomicity::Batch, Effect::Unlisted, move |conn| {
            let set = "UPDATE accounts SET password_hash = ?2 WHERE id = ?1 AND deleted_at IS NULL RETURNING email";
            let Some(email) = conn.find(set, (account.0, &new.0), email)? else { return Ok(false) };
            audit::sqlite::record(conn, &actor, Action::SetPassword, email.as_str())?;
            delete_all(conn, account)?;
            Ok(true)
        })
        .await
    }

    pub async fn delete_account(
        &self,
        account: AccountId,
        checked: Option<PasswordDigest>,
        actor: Actor,
    ) -> Result<bool> {
        self.submit(Atomicity::Batch, Effect::Any, move |conn| {
            let checked = checked.map(|digest| digest.0);
            let Some(email) = conn.find(FIND_DELETABLE, (account.0, checked), email)? else { return Ok(false) };
            conn.execute(DELETE_ACCOUNT, (account.0, actor.at.as_milliseconds()))?;
            delete_all(conn, account)?;
            keys::sqlite::revoke_all(conn, account, &email, &actor)?;
            orders::sqlite::cancel_all(conn, account, &email, &actor)?;
            audit::sqlite::record(conn, &actor, Action::DeleteAccount, email.as_str())?;
            Ok(true)
        })
        .await
    }
}

/// Also deletes expired sessions, which would otherwise accumulate.
fn insert(conn: &WriteConnection<'_>, session: &NewSession, checked: &PasswordDigest) -> Result<bool> {
    let now = session.now;
    let (began, used, future) = (now.minus(ABSOLUTE), now.minus(IDLE), now.plus(SKEW));
    conn.execute(DELETE_ENDED, (began.as_milliseconds(), used.as_milliseconds(), future.as_milliseconds()))?;
    Ok(conn.execute(INSERT, (session.hash.0, session.account.0, now.as_milliseconds(), &checked.0))? == 1)
}

fn email(row: &Row<'_>) -> rusqlite::Result<Email> {
    row.get(0)
}

fn delete_all(conn: &WriteConnection<'_>, account: AccountId) -> Result<()> {
    conn.execute("DELETE FROM sessions WHERE account_id = ?1", [account.0])?;
    Ok(())
}
