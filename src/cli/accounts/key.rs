//! `petstore key`

use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::api::prefer::preferences::Preferences;
use crate::cli::data::database::find_account;
use crate::cli::terminal::table::{Listed, print_list, shown};
use crate::cli::{Outcome, actor, print, print_secret, with_store};
use crate::config::{Common, at_least_a_second};
use crate::domain::api_key::{KeyName, NewKey, Rotation};
use crate::domain::time::duration;
use crate::domain::{ApiKey, Deployment, Email, Invalid, KeyId, KeyRecord};
use crate::runtime::clock::Clock;

#[derive(Subcommand, Debug)]
pub enum Key {
    /// Create an API key and print it
    ///
    /// The key cannot be shown again, because only its hash is stored.
    #[command(after_long_help = "\
Example:
  petstore key create --account ada@example.com --name laptop --expires-in 90d")]
    Create {
        /// Account of the key
        #[arg(long, value_name = "EMAIL", value_parser = Email::parse)]
        account: Email,
        /// Name of the key
        #[arg(long, value_parser = |name: &str| KeyName::parse(name.to_owned()))]
        name: KeyName,
        /// Lifetime of the key, for instance 90d [default: unlimited]
        #[arg(long, value_name = "DURATION", value_parser = at_least_a_second)]
        expires_in: Option<Duration>,
        /// Let requests with the key only read: others get 403
        #[arg(long)]
        read_only: bool,
        /// Failures that requests with the key get, as in the header `Prefer`, for instance 'code=503, rate=0.1'; only on
        /// staging
        #[arg(long, value_name = "PREFERENCES", value_parser = preferences)]
        prefer: Option<String>,
    },
    /// List the API keys of all accounts
    List {
        /// Print a JSON array of objects
        #[arg(long)]
        json: bool,
    },
    /// Revoke an API key
    ///
    /// The key stops working at once. This cannot be undone.
    Revoke {
        /// Id of the key, from `petstore key list`
        #[arg(value_parser = key_id)]
        id: KeyId,
    },
    /// Replace an API key with a new one and print it
    ///
    /// The new key has the same account, name, lifetime, access and preferences. The old key keeps working for the time of
    /// --overlap, so that clients can switch without an interruption.
    #[command(after_long_help = "\
Example:
  petstore key rotate 3 --overlap 7d")]
    Rotate {
        /// Id of the key, from `petstore key list`
        #[arg(value_parser = key_id)]
        id: KeyId,
        /// Time for which the old key keeps working
        #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
        overlap: Duration,
    },
    /// Print a new key for a store of `petstore ephemeral`
    ///
    /// The key is stored nowhere. `petstore ephemeral --key KEY` starts a store that accepts it.
    New,
}

impl Key {
    pub fn run(self, common: &Common) -> Outcome {
        match self {
            Self::Create { account, name, expires_in, read_only, prefer } => with_store(common, None, async |store| {
                let (deployment, now) = (store.deployment(), Clock::System.now());
                let prefer = prefer.map(|text| Preferences::for_key(&text, deployment, now)).transpose();
                let prefer = prefer.map_err(|invalid| format!("--prefer {invalid}"))?;
                let account = find_account(store, &account).await?;
                let key = ApiKey::generate(deployment);
                let new = NewKey::of(&key, account.id, name, now, expires_in);
                show(&key, store.create_key(NewKey { read_only, prefer, ..new }, actor()).await?)
            }),
            Self::List { json } => with_store(common, None, async |store| print_list(&store.list_keys().await?, json)),
            Self::Revoke { id } => {
                with_store(common, None, async |store| match store.revoke_key(id, actor()).await? {
                    true => Ok(()),
                    false => Err(format!("there is no key {}", id.0).into()),
                })
            }
            Self::Rotate { id, overlap } => with_store(common, None, async |store| {
                let key = ApiKey::generate(store.deployment());
                let rotation = Rotation::to(&key, Clock::System.now(), overlap);
                match store.rotate_key(id, rotation, actor()).await? {
                    Some(new) => show(&key, new),
                    None => Err(format!("there is no active key {}", id.0).into()),
                }
            }),
            Self::New => print(&format!("{}\n", ApiKey::generate(Deployment::Staging).expose())),
        }
    }
}

/// Prints a new key.
fn show(key: &ApiKey, KeyId(id): KeyId) -> Outcome {
    let instead = format!("replace it with `petstore key rotate {id} --overlap 0s`");
    print_secret(key.expose(), &format!("key {id} was created"), &instead)
}

impl Listed for KeyRecord {
    const HEAD: &[&str] =
        &["ID", "NAME", "ACCOUNT", "HINT", "CREATED", "LAST USED", "EXPIRES", "REVOKED", "ACCESS", "PREFER"];

    const FIELDS: &[&str] =
        &["id", "name", "account", "hint", "createdAt", "lastUsedAt", "expiresAt", "revokedAt", "readOnly", "prefer"];

    fn cell(field: &str, value: &Value) -> String {
        match value.as_bool().filter(|_| field == "readOnly") {
            Some(is_read_only) => if is_read_only { "read" } else { "write" }.to_owned(),
            None => shown(value),
        }
    }

    fn json(&self) -> Value {
        json!(KeyRecord { last_used_at: self.last_use(), ..self.clone() })
    }
}

/// Checks everything that does not depend on the store.
fn preferences(text: &str) -> Result<String, Invalid> {
    Preferences::for_key(text, Deployment::Staging, Clock::System.now())
}

fn key_id(id: &str) -> Result<KeyId, Invalid> {
    id.parse().map(KeyId).map_err(|_| Invalid("a key id is a number: see `petstore key list`".into()))
}
