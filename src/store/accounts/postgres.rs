//! Accounts.

use tokio_postgres::types::ToSql;

use crate::domain::account::PasswordDigest;
use crate::domain::{Account, AccountId, Action, Actor, Email, NewAccount, Role};
use crate::store::Result;
use crate::store::accounts::{FIND, FIND_EMAIL, FIND_PASSWORD, LIST};
use crate::store::audit::Values;
use crate::store::postgres::database::Postgres;
use crate::store::postgres::rows;

const INSERT: &str = "WITH new AS (
        INSERT INTO accounts (email, email_folded, password_hash, role, created_at)
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT (email_folded) DO NOTHING RETURNING id
    ), recorded AS (
        INSERT INTO audit (created_at, action, actor, subject, client_address, request_id)
        SELECT $6, $7, $8, $9, $10, $11 FROM new
    ) SELECT id FROM new";

const EXIST: &str = "SELECT EXISTS (SELECT FROM accounts WHERE deleted_at IS NULL)";

/// Other processes forget what they know of the account's keys.
const SET_ROLE: &str = "WITH account AS (
        SELECT id, email, role FROM accounts WHERE id = $1 AND deleted_at IS NULL FOR NO KEY UPDATE
    ), changed AS (
        UPDATE accounts SET role = $2 WHERE id IN (SELECT id FROM account) RETURNING id
    ), bumped AS (
        UPDATE meta SET value = (value::bigint + 1)::text WHERE key = 'keys_version' AND EXISTS (SELECT FROM changed)
    ), recorded AS (
        INSERT INTO audit (created_at, action, actor, subject, client_address, request_id)
        SELECT $3, $4, $5, email || ' (' || $6::text || ')', $7, $8 FROM account WHERE role <> $2
    ) SELECT pg_notify('petstore_keys', '') FROM changed";

const FIND_DELETED: &str = "SELECT id FROM accounts WHERE id = ANY ($1::bigint[]) AND deleted_at IS NOT NULL";

/// Statements prepared on each connection for reads or single writes.
pub const STATEMENTS: &[&str] = &[FIND, FIND_EMAIL, FIND_PASSWORD, EXIST, LIST, FIND_DELETED, INSERT, SET_ROLE];

impl Postgres {
    pub async fn create_account(&self, new: NewAccount, actor: Actor) -> Result<Option<AccountId>> {
        let NewAccount { email, password, role, now } = new;
        let password = password.as_ref().map(|digest| &*digest.0);
        let (folded, now) = (email.folded(), now.as_milliseconds());
        let (email, subject, role) = (email.as_str(), email.with_role(role), role.code());
        let Values { at, action, actor, client_address, request_id } = Values::of(&actor, Action::CreateAccount);
        let account: [&(dyn ToSql + Sync); 5] = [&email, &folded, &password, &role, &now];
        let recorded: [&(dyn ToSql + Sync); 6] = [&at, &action, &actor, &subject, &client_address, &request_id];
        let rows = self.write(INSERT, &[&account[..], &recorded[..]].concat()).await?;
        rows.first().map(|row| Ok(AccountId(row.try_get(0)?))).transpose()
    }

    pub async fn find_account(&self, email: &Email) -> Result<Option<Account>> {
        let rows = self.readers.query(FIND, &[&email.lower_case(), &email.folded()]).await?;
        rows::first(&rows)
    }

    pub async fn find_email(&self, account: AccountId) -> Result<Option<Email>> {
        let rows = self.readers.query(FIND_EMAIL, &[&account.0]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }

    pub async fn set_role(&self, account: AccountId, role: Role, actor: Actor) -> Result<bool> {
        let Values { at, action, actor, client_address, request_id } = Values::of(&actor, Action::SetRole);
        let (code, name) = (role.code(), role.as_str());
        let parameters: [&(dyn ToSql + Sync); 8] =
            [&account.0, &code, &at, &action, &actor, &name, &client_address, &request_id];
        Ok(!self.write(SET_ROLE, &parameters).await?.is_empty())
    }

    pub async fn list_accounts(&self) -> Result<Vec<Account>> {
        rows::all(&self.readers.query(LIST, &[]).await?)
    }

    pub async fn find_password(&self, email: &Email) -> Result<Option<(AccountId, PasswordDigest)>> {
        let rows = self.readers.query(FIND_PASSWORD, &[&email.lower_case(), &email.folded()]).await?;
        rows.first().map(|row| Ok((AccountId(row.try_get(0)?), PasswordDigest(row.try_get(1)?)))).transpose()
    }

    pub async fn deleted_among(&self, accounts: Vec<AccountId>) -> Result<Vec<AccountId>> {
        let ids: Vec<_> = accounts.iter().map(|account| account.0).collect();
        let rows = self.readers.query(FIND_DELETED, &[&ids]).await?;
        rows.iter().map(|row| Ok(AccountId(row.try_get(0)?))).collect()
    }

    pub async fn has_accounts(&self) -> Result<bool> {
        let rows = self.readers.query(EXIST, &[]).await?;
        Ok(rows::only(&rows)?.try_get(0)?)
    }
}
