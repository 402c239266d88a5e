//! `petstore key …`

use std::time::Duration;

use clap::{Args, Subcommand};

use super::table::{in_order, moment};
use super::{Create, Failure, Outcome, print, with_store, write_out};
use crate::config::{Common, at_least_a_second, duration};
use crate::domain::api_key::{KeyName, NewKey, Rotation};
use crate::domain::{ApiKey, Clock, Email, Invalid, KeyId, KeyRecord, Timestamp};

#[derive(Subcommand, Debug)]
pub enum Key {
    Create(CreateKey),
    List(ListKeys),
    Revoke(RevokeKey),
    Rotate(RotateKey),
}

/// Make an API key and print it: it is not shown again
#[derive(Args, Debug)]
pub struct CreateKey {
    /// The account the key belongs to
    #[arg(long, value_name = "EMAIL", value_parser = Email::parse)]
    account: Email,
    /// What to call the key
    #[arg(long, value_parser = key_name)]
    name: KeyName,
    /// After how long the key stops working, for instance 90d [default: never]
    #[arg(long, value_name = "DURATION", value_parser = at_least_a_second)]
    expires_in: Option<Duration>,
    #[command(flatten)]
    common: Common,
}

/// List the keys of all accounts
#[derive(Args, Debug)]
pub struct ListKeys {
    /// Print a JSON array of objects
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

/// Revoke a key, at once and for good
#[derive(Args, Debug)]
pub struct RevokeKey {
    /// The key's id, as `key list` shows it
    #[arg(value_parser = key_id)]
    id: KeyId,
    #[command(flatten)]
    common: Common,
}

/// Give a key a successor, and print that: the same account, name and lifetime
#[derive(Args, Debug)]
pub struct RotateKey {
    /// The key's id, as `key list` shows it
    #[arg(value_parser = key_id)]
    id: KeyId,
    /// How long the old key goes on working
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    overlap: Duration,
    #[command(flatten)]
    common: Common,
}

impl Key {
    pub fn run(self) -> Outcome {
        match self {
            Self::Create(command) => command.run(),
            Self::List(command) => command.run(),
            Self::Revoke(command) => command.run(),
            Self::Rotate(command) => command.run(),
        }
    }
}

impl CreateKey {
    fn run(self) -> Outcome {
        with_store(&self.common, Create::Never, async |store| {
            let account = store.find_account(&self.account).await?;
            let account = account.ok_or_else(|| Failure(format!("there is no account {}", self.account.as_str())))?;
            let key = ApiKey::generate(store.deployment());
            let new = NewKey::of(&key, account.id, self.name, Clock::System.now(), self.expires_in);
            show(&key, store.create_key(new).await?)
        })
    }
}

impl ListKeys {
    fn run(self) -> Outcome {
        with_store(&self.common, Create::Never, async |store| {
            let keys: Vec<_> = store.list_keys().await?.into_iter().map(ListedKey::from).collect();
            print(&if self.json { format!("{}\n", serde_json::to_string_pretty(&keys)?) } else { table(&keys) })
        })
    }
}

impl RevokeKey {
    fn run(self) -> Outcome {
        with_store(&self.common, Create::Never, async |store| {
            match store.revoke_key(self.id, Clock::System.now()).await? {
                true => Ok(()),
                false => Err(Failure(format!("there is no key {}", self.id.0))),
            }
        })
    }
}

impl RotateKey {
    fn run(self) -> Outcome {
        with_store(&self.common, Create::Never, async |store| {
            let key = ApiKey::generate(store.deployment());
            match store.rotate_key(self.id, Rotation::to(&key, Clock::System.now(), self.overlap)).await? {
                Some(new) => show(&key, new),
                None => Err(Failure(format!("there is no key {} that still works", self.id.0))),
            }
        })
    }
}

/// Prints a key that was made. It is not shown again, so nobody may be left to think that all went well without it.
fn show(key: &ApiKey, id: KeyId) -> Outcome {
    write_out(&format!("{}\n", key.expose())).map_err(|error| {
        let id = id.0;
        let again = format!("`petstore key rotate {id} --overlap 0s` puts another in its place");
        Failure(format!("key {id} was made, but can't be shown: {error}; {again}"))
    })
}

/// A key as `--json` shows it.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedKey {
    id: i64,
    name: String,
    account: String,
    hint: String,
    created_at: Timestamp,
    last_used_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
}

impl From<KeyRecord> for ListedKey {
    fn from(key: KeyRecord) -> Self {
        let last_used_at = key.last_use();
        Self {
            id: key.id.0,
            name: key.name,
            account: key.account.as_str().to_owned(),
            hint: key.hint,
            created_at: key.created_at,
            last_used_at,
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
        }
    }
}

fn table(keys: &[ListedKey]) -> String {
    let head = ["ID", "NAME", "ACCOUNT", "HINT", "CREATED", "LAST USED", "EXPIRES", "REVOKED"];
    let rows = keys.iter().map(|key| {
        [
            key.id.to_string(),
            in_order(&key.name),
            in_order(&key.account),
            key.hint.clone(),
            key.created_at.to_string(),
            moment(key.last_used_at),
            moment(key.expires_at),
            moment(key.revoked_at),
        ]
    });
    super::table::table(head, rows)
}

fn key_name(name: &str) -> Result<KeyName, Invalid> {
    KeyName::parse(name.to_owned())
}

fn key_id(id: &str) -> Result<KeyId, Invalid> {
    id.parse().map(KeyId).map_err(|_| Invalid("a key's id is a number, as `petstore key list` shows it".into()))
}
