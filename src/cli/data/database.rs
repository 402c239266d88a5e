//! Opens the database of a command.

use crate::cli::Outcome;
use crate::cli::runtime::block_on;
use crate::config::Common;
use crate::domain::{Account, AccountId, Deployment, Email};
use crate::store::postgres::{self, DatabaseUrl, Postgres};
use crate::store::sqlite::{self, Sqlite};
use crate::store::{Store, StoreError};

/// Opens the store, runs `command` on this thread, and closes the store. If there is no database, creates one with the
/// deployment `create`, or fails if `create` is `None` or `--existing-only` is set.
pub fn with_store<T>(
    common: &Common,
    create: Option<Deployment>,
    command: impl AsyncFnOnce(&Store) -> Outcome<T>,
) -> Outcome<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    block_on(runtime, async {
        let store = open(common, create, postgres::Options::of_command).await?;
        let result = command(&store).await;
        store.close().await;
        result
    })
}

/// Opens the PostgreSQL database if `--database-url` is set, with `defaults`, otherwise the embedded database. `--deployment`
/// overrides the deployment of `create`.
pub async fn open(
    common: &Common,
    create: Option<Deployment>,
    defaults: fn(DatabaseUrl) -> postgres::Options,
) -> Outcome<Store> {
    let (deployment, create) = (common.deployment, create.filter(|_| !common.existing_only));
    let opened = match &common.database_url {
        Some(url) => {
            let mut options = postgres::Options { deployment, create, ..defaults(url.clone()) };
            options.cluster.require_standbys = common.require_standbys;
            Postgres::open(&options).await.map(|db| Store::Postgres(Box::new(db)))
        }
        None => {
            refuse_standbys(common)?;
            let options = sqlite::Options { deployment, create, ..sqlite::Options::new(&common.data_dir) };
            Sqlite::open(&options).map(Store::Sqlite)
        }
    };
    Ok(opened.map_err(|error| not_opened(common, error))?)
}

/// Fails if standbys are required of an embedded database.
pub fn refuse_standbys(common: &Common) -> Outcome {
    let why = "an embedded database has no standbys: give --database-url with --require-standbys";
    if common.require_standbys && common.database_url.is_none() { Err(why.into()) } else { Ok(()) }
}

pub fn not_opened(common: &Common, error: StoreError) -> String {
    match (error, &common.database_url) {
        (StoreError::Unavailable(why), Some(url)) => format!("cannot open the database {url}: {why}"),
        (StoreError::Unavailable(why), None) => {
            // SQLite reports an I/O error if its index does not fit.
            let why = if sqlite::folder(&common.data_dir).is_disk_full() { "the disk is full".into() } else { why };
            format!("cannot open the database in {}: {why}", common.data_dir.display())
        }
        (error, Some(url)) => format!("{url}: {error}"),
        (error, None) => error.to_string(),
    }
}

pub async fn find_account(store: &Store, email: &Email) -> Outcome<Account> {
    Ok(store.find_account(email).await?.ok_or_else(|| no_account(email))?)
}

/// Returns the id of the account that a flag names, if it is given.
pub async fn find_account_id(store: &Store, email: Option<&Email>) -> Outcome<Option<AccountId>> {
    let Some(email) = email else { return Ok(None) };
    Ok(Some(find_account(store, email).await?.id))
}

/// Fails if the account is suspended.
pub fn refuse_suspended(account: &Account) -> Outcome {
    let email = account.email.as_str();
    match account.suspended_at {
        None => Ok(()),
        Some(_) => Err(format!("the account {email} is suspended: run `petstore account resume {email}` first").into()),
    }
}

pub fn no_account(email: &Email) -> String {
    format!("there is no account {}", email.as_str())
}
