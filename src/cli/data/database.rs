//! Opens the database of a command.

use std::sync::Arc;

use crate::cli::runtime::block_on;
use crate::cli::{Failure, Outcome};
use crate::config::Common;
use crate::domain::{Account, Deployment, Email};
use crate::store::postgres::{self, DatabaseUrl, Postgres};
use crate::store::sqlite::{self, Sqlite};
use crate::store::{Store, StoreError};

/// Opens the store, runs `command` on this thread, and closes the store.
pub fn with_store<T, F: Future<Output = Result<T, Failure>>>(
    common: &Common,
    create: Create,
    command: impl FnOnce(Arc<Store>) -> F,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    block_on(runtime, async {
        let store = Arc::new(open(common, create, postgres::Options::of_command).await?);
        let result = command(Arc::clone(&store)).await;
        store.close().await;
        result
    })
}

/// Decides if a command creates a missing database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// With this deployment, unless `--deployment` names another one.
    IfMissing(Deployment),
    Never,
}

impl Create {
    pub const PRODUCTION: Self = Self::IfMissing(Deployment::Production);
}

/// Opens the PostgreSQL database if `--database-url` is set, with `defaults`, otherwise the embedded database.
pub async fn open(
    common: &Common,
    create: Create,
    defaults: fn(DatabaseUrl) -> postgres::Options,
) -> Result<Store, Failure> {
    let create = match create {
        Create::IfMissing(deployment) => Some(deployment),
        Create::Never => None,
    };
    let deployment = common.deployment;
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
    opened.map_err(|error| not_opened(common, error))
}

/// Fails if standbys are required of an embedded database.
pub fn refuse_standbys(common: &Common) -> Outcome {
    match common.require_standbys {
        true => {
            Err(Failure("an embedded database has no standbys: give --database-url with --require-standbys".into()))
        }
        false => Ok(()),
    }
}

pub fn not_opened(common: &Common, error: StoreError) -> Failure {
    match (error, &common.database_url) {
        (StoreError::Unavailable(why), Some(url)) => Failure(format!("cannot open the database {url}: {why}")),
        (StoreError::Unavailable(why), None) => {
            // SQLite reports an I/O error if its index does not fit.
            let why = if sqlite::folder(&common.data_dir).is_disk_full() { "the disk is full".into() } else { why };
            Failure(format!("cannot open the database in {}: {why}", common.data_dir.display()))
        }
        (error, Some(url)) => Failure(format!("{url}: {error}")),
        (error, None) => error.into(),
    }
}

pub async fn find_account(store: &Store, email: &Email) -> Result<Account, Failure> {
    store.find_account(email).await?.ok_or_else(|| no_account(email))
}

pub fn no_account(email: &Email) -> Failure {
    Failure(format!("there is no account {}", email.as_str()))
}
