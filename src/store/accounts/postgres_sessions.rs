//! Sessions, and operations that require the account's password.
//!
//! Passwords are checked outside of transactions, because hashing is slow. Each of these statements therefore compares the
//! digest that was checked, and does nothing if the password has changed since.
//!
//! Changing a password and deleting an account are transactions of several statements. A statement does not see rows that
//! were committed while it waited for the account's row, but the next statement does. No session and no key is missed.

use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use crate::domain::account::PasswordDigest;
use crate::domain::session::{ABSOLUTE, IDLE, NewSession, SKEW};
use crate::domain::{AccountId, Action, Actor, Session, SessionHash, Timestamp};
use crate::store::Result;
use crate::store::accounts::FIND_SESSION;
use crate::store::audit;
use crate::store::audit::Values;
use crate::store::orders;
use crate::store::postgres::database::Postgres;
use crate::store::postgres::rows;

/// Also deletes expired sessions, which otherwise accumulate. Locks the account's row, so that no session starts with a
/// password that is being changed.
const INSERT: &str = "WITH ended AS (
        DELETE FROM sessions WHERE token_hash IN (
            SELECT token_hash FROM sessions
            WHERE created_at <= $5 OR last_used_at <= $6 OR created_at > $7 OR last_used_at > $7
            FOR UPDATE SKIP LOCKED)
    ) INSERT INTO sessions (token_hash, account_id, created_at, last_used_at)
    SELECT $1, id, $3, $3 FROM accounts WHERE id = $2 AND password_hash = $4 FOR SHARE RETURNING account_id";

const TOUCH: &str = "UPDATE sessions SET last_used_at = $2 WHERE token_hash = $1 AND last_used_at < $2";

const DELETE: &str = "DELETE FROM sessions WHERE token_hash = $1";

/// Statements prepared on each connection for reads or single writes.
pub const STATEMENTS: &[&str] = &[FIND_SESSION, INSERT, TOUCH, DELETE];

impl Postgres {
    pub async fn create_session(&self, session: NewSession, checked: PasswordDigest) -> Result<bool> {
        let (hash, now) = (&session.hash.0[..], session.now.as_milliseconds());
        let (began, used) = (session.now.minus(ABSOLUTE).as_milliseconds(), session.now.minus(IDLE).as_milliseconds());
        let future = session.now.plus(SKEW).as_milliseconds();
        let parameters: [&(dyn ToSql + Sync); 7] =
            [&hash, &session.account.0, &now, &checked.0, &began, &used, &future];
        let begun = self.write(INSERT, &parameters).await?;
        Ok(!begun.is_empty())
    }

    pub async fn find_session(&self, hash: &SessionHash) -> Result<Option<Session>> {
        let rows = self.readers.query(FIND_SESSION, &[&&hash.0[..]]).await?;
        rows::first(&rows)
    }

    pub async fn touch_session(&self, hash: SessionHash, now: Timestamp) -> Result<()> {
        self.write(TOUCH, &[&&hash.0[..], &now.as_milliseconds()]).await.map(|_| ())
    }

    pub async fn delete_session(&self, hash: SessionHash) -> Result<()> {
        self.write(DELETE, &[&&hash.0[..]]).await.map(|_| ())
    }

    pub async fn change_password(
        &self,
        session: NewSession,
        checked: PasswordDigest,
        new: PasswordDigest,
        actor: Actor,
    ) -> Result<bool> {
        self.write_steps(async |client: &Client| {
            let change = "UPDATE accounts SET password_hash = $3 WHERE id = $1 AND password_hash = $2 RETURNING email";
            let changed = client.query_opt(change, &[&session.account.0, &checked.0, &new.0]).await?;
            let Some(changed) = changed else { return Ok(false) };
            audit::postgres::record(client, &actor, Action::SetPassword, changed.try_get(0)?).await?;
            client.execute("DELETE FROM sessions WHERE account_id = $1", &[&session.account.0]).await?;
            let (hash, now) = (&session.hash.0[..], session.now.as_milliseconds());
            let begin =
                "INSERT INTO sessions (token_hash, account_id, created_at, last_used_at) VALUES ($1, $2, $3, $3)";
            client.execute(begin, &[&hash, &session.account.0, &now]).await?;
            Ok(true)
        })
        .await
    }

    pub async fn set_password(&self, account: AccountId, new: PasswordDigest, actor: Actor) -> Result<bool> {
        self.write_steps(async |client: &Client| {
            let change = "UPDATE accounts SET password_hash = $2 WHERE id = $1 AND deleted_at IS NULL RETURNING email";
            let Some(changed) = client.query_opt(change, &[&account.0, &new.0]).await? else { return Ok(false) };
            audit::postgres::record(client, &actor, Action::SetPassword, changed.try_get(0)?).await?;
            client.execute("DELETE FROM sessions WHERE account_id = $1", &[&account.0]).await?;
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
        self.write_steps(async |client: &Client| {
            let find = "SELECT email FROM accounts
                WHERE id = $1 AND deleted_at IS NULL AND ($2::text IS NULL OR password_hash = $2) FOR UPDATE";
            let checked = checked.as_ref().map(|digest| &*digest.0);
            let Some(found) = client.query_opt(find, &[&account.0, &checked]).await? else { return Ok(false) };
            let email: &str = found.try_get(0)?;
            // Email addresses have no spaces, so nobody can sign up under this folded address.
            let delete = "UPDATE accounts SET email = 'deleted-' || id || '@account.invalid',
                email_folded = 'deleted ' || id, password_hash = NULL, deleted_at = $2 WHERE id = $1";
            client.execute(delete, &[&account.0, &actor.at.as_milliseconds()]).await?;
            client.execute("DELETE FROM sessions WHERE account_id = $1", &[&account.0]).await?;
            revoke_all(client, account, email, &actor).await?;
            orders::postgres::cancel_all(client, account, email, &actor).await?;
            audit::postgres::record(client, &actor, Action::DeleteAccount, email).await?;
            // Last, because every change of any key waits for this row.
            let bump = "UPDATE meta SET value = (value::bigint + 1)::text WHERE key = 'keys_version'";
            client.execute(bump, &[]).await?;
            client.execute("SELECT pg_notify('petstore_keys', '')", &[]).await?;
            Ok(true)
        })
        .await
    }
}

async fn revoke_all(
    client: &Client,
    account: AccountId,
    email: &str,
    actor: &Actor,
) -> std::result::Result<(), tokio_postgres::Error> {
    let revoke = "WITH revoked AS (
            UPDATE api_keys SET revoked_at = $2 WHERE account_id = $1 AND revoked_at IS NULL RETURNING id, hint, name
        )
        INSERT INTO audit (created_at, action, actor, subject, client_address, request_id)
        SELECT $2, $3, $4, 'key ' || id || ' (' || hint || ') of ' || $5::text || ': ' || name, $6, $7
        FROM revoked ORDER BY id";
    let Values { at, action, actor, client_address, request_id } = Values::of(actor, Action::RevokeKey);
    let parameters: [&(dyn ToSql + Sync); 7] = [&account.0, &at, &action, &actor, &email, &client_address, &request_id];
    client.execute(revoke, &parameters).await.map(|_| ())
}
