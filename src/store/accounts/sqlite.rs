//! Accounts in SQLite.

use crate::domain::account::PasswordDigest;
use crate::domain::{Account, AccountId, Action, Actor, Email, NewAccount, Role};
use crate::store::Result;
use crate::store::accounts::{FIND, FIND_EMAIL, FIND_PASSWORD, LIST};
use crate::store::audit;
use crate::store::keys;
use crate::store::sqlite::{Atomicity, Effect, Sqlite, rows};

const INSERT: &str =
    "INSERT INTO accounts (email, email_folded, password_hash, role, created_at) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (email_folded) DO NOTHING";

const FIND_ROLE: &str = "SELECT email, role FROM accounts WHERE id = ?1 AND deleted_at IS NULL";

const SET_ROLE: &str = "UPDATE accounts SET role = ?2 WHERE id = ?1";

const EXIST: &str = "SELECT 1 FROM accounts WHERE deleted_at IS NULL LIMIT 1";

const FIND_DELETED: &str =
    "SELECT id FROM accounts WHERE id IN (SELECT value FROM json_each(?1)) AND deleted_at IS NOT NULL";

impl Sqlite {
    pub async fn create_account(&self, new: NewAccount, actor: Actor) -> Result<Option<AccountId>> {
        self.submit(Atomicity::Savepoint, Effect::Unlisted, move |conn| {
            let NewAccount { email, password, role, now } = new;
            let password = password.map(|digest| digest.0);
            let params = (email.as_str(), email.folded(), password, role.code(), now.as_milliseconds());
            if conn.execute(INSERT, params)? == 0 {
                return Ok(None);
            }
            let id = AccountId(conn.last_insert_rowid());
            audit::sqlite::record(conn, &actor, Action::CreateAccount, &email.with_role(role))?;
            Ok(Some(id))
        })
        .await
    }

    pub async fn find_account(&self, email: &Email) -> Result<Option<Account>> {
        self.read(|conn| rows::first(conn, FIND, [email.lower_case(), email.folded()], rows::read))
    }

    pub async fn find_email(&self, account: AccountId) -> Result<Option<Email>> {
        self.read(|conn| rows::first(conn, FIND_EMAIL, [account.0], |row| row.get(0)))
    }

    pub async fn list_accounts(&self) -> Result<Vec<Account>> {
        self.read_long(|conn| rows::all(conn, LIST, [], rows::read)).await
    }

    pub async fn deleted_among(&self, accounts: Vec<AccountId>) -> Result<Vec<AccountId>> {
        let ids: Vec<_> = accounts.iter().map(|account| account.0).collect();
        let ids = format!("{ids:?}");
        self.read_long(move |conn| rows::all(conn, FIND_DELETED, [ids], |row| Ok(AccountId(row.get(0)?)))).await
    }

    pub async fn has_accounts(&self) -> Result<bool> {
        self.read(|conn| Ok(rows::first(conn, EXIST, [], |_| Ok(()))?.is_some()))
    }

    pub async fn set_role(&self, account: AccountId, role: Role, actor: Actor) -> Result<bool> {
        self.submit(Atomicity::Savepoint, Effect::Unlisted, move |conn| {
            let found =
                conn.find(FIND_ROLE, [account.0], |row| Ok((row.get::<_, Email>(0)?, row.get::<_, Role>(1)?)))?;
            let Some((email, before)) = found else { return Ok(false) };
            if before != role {
                conn.execute(SET_ROLE, (account.0, role.code()))?;
                keys::sqlite::bump_version(conn)?;
                audit::sqlite::record(conn, &actor, Action::SetRole, &email.with_role(role))?;
            }
            Ok(true)
        })
        .await
    }

    pub async fn find_password(&self, email: &Email) -> Result<Option<(AccountId, PasswordDigest)>> {
        self.read(|conn| {
            rows::first(conn, FIND_PASSWORD, [email.lower_case(), email.folded()], |row| {
                Ok((AccountId(row.get(0)?), PasswordDigest(row.get(1)?)))
            })
        })
    }
}
