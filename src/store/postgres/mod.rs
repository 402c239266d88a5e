//! PostgreSQL: any number of processes on one database or cluster.
//!
//! Every write of a request without a key is one statement, so no transaction is open between two round trips. Requests therefore
//! share connections, and nothing has to be rolled back. Operations of several statements (an import, a copy, changes of
//! accounts and keys) open their own connection.

pub(super) mod database;
mod error;
mod keyed;
pub(super) mod migrations;
mod open;
pub(super) mod rows;
mod settings;
pub(super) mod write;
mod write_queues;

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt;
use tokio::sync::Mutex;

pub use database::Postgres;
pub(super) use error::of_commit;
use migrations::Schema;
pub use open::no_tables;
pub use postgres_group_commit::DatabaseUrl;
pub(super) use postgres_group_commit::within;
use postgres_group_commit::{Cluster, Connection, Observer, ReadBatcher};
pub(super) use rows::LONG;
pub use settings::Options;
use write_queues::{WriteQueue, WriteQueues};

use super::{Meters, MigrationStatus, ReaderMeter, Result, deployment};
use crate::domain::{Deployment, Invalid};
use crate::store;
use crate::store::migrations::history;

/// Timeout of the readiness check. Below a second, because probes often give up after that time.
const CHECK_TIMEOUT: Duration = Duration::from_millis(800);

/// Parses the value of a setting.
pub fn parse_url(text: &str) -> Result<DatabaseUrl, Invalid> {
    DatabaseUrl::parse(text).map_err(|why| Invalid(why.to_string()))
}

impl Postgres {
    /// Connects to a database, creates its tables if `options` allow that, and migrates it.
    pub async fn open(options: &Options) -> Result<Self> {
        let (cluster, mut connection) = Cluster::connect(&options.cluster).await?;
        let deployment = open::prepare(&mut connection.client, options).await?;
        let id = deployment::id(&connection.client).await?;
        let version = open::setting(&connection.client, "server_version").await?;
        let reader_meter = Arc::<ReaderMeter>::default();
        let observer = || Arc::clone(&reader_meter) as Arc<dyn Observer>;
        let shared = [
            store::accounts::STATEMENTS,
            store::audit::STATEMENTS,
            store::idempotency::STATEMENTS,
            store::keys::STATEMENTS,
            store::messages::STATEMENTS,
            store::reset::STATEMENTS,
        ];
        let own = [
            store::pets::postgres::STATEMENTS,
            store::orders::postgres::STATEMENTS,
            &[store::messages::postgres::MARK_SENT, store::reset::postgres::OTHER_OWNER],
        ];
        let shared = shared.into_iter().flatten().map(|sql| sql.postgres);
        let statements: Vec<_> = own.into_iter().flatten().copied().chain(shared).collect();
        let (readers, key_readers, pets, messages, orders, transitions, single) = tokio::try_join!(
            cluster.readers("reads", options.readers, &statements, observer()).err_into(),
            cluster.readers("keys", 1, &[store::keys::postgres::FIND], observer()).err_into(),
            WriteQueues::open(&cluster, ["animals", "animals_keyed"]),
            WriteQueues::open(&cluster, ["messages", "messages_keyed"]),
            WriteQueues::open(&cluster, ["orders", "orders_keyed"]),
            WriteQueue::open(&cluster, "order_transitions"),
            cluster.single_writes("single", &statements).err_into(),
        )?;
        Ok(Self {
            cluster,
            deployment,
            id,
            version: version.split(' ').next().unwrap_or_default().to_owned(),
            lists: ReadBatcher::new(&readers),
            finds: ReadBatcher::new(&readers),
            keys: ReadBatcher::new(&key_readers),
            readers,
            reader_meter,
            key_readers,
            pets,
            messages,
            orders,
            transitions,
            single,
            transactions: Mutex::default(),
            counting: Arc::default(),
        })
    }

    /// Lists the migrations of a database without changing it.
    pub async fn migration_status(url: &DatabaseUrl) -> Result<Vec<MigrationStatus>> {
        let connection = connect(url, false).await?;
        if Schema::read(&connection.client).await?.is_new() {
            return Err(no_tables());
        }
        Ok(store::migrations::status(store::migrations::POSTGRES, &history(&connection.client).await?))
    }

    /// Returns the deployment of a database without changing it. `None` if it has no tables yet.
    pub async fn stored_deployment(url: &DatabaseUrl) -> Result<Option<Deployment>> {
        let connection = connect(url, false).await?;
        match Schema::read(&connection.client).await?.is_new() {
            true => Ok(None),
            false => deployment::stored(&connection.client, None).await.map(Some),
        }
    }

    /// Returns the deployment like [`Self::stored_deployment`]. Fails if a service could not open the database.
    pub async fn check_openable(url: &DatabaseUrl, require_standbys: bool) -> Result<Option<Deployment>> {
        let connection = connect(url, require_standbys).await?;
        open::check_encoding(&connection.client).await?;
        let schema = Schema::read(&connection.client).await?;
        if schema.is_new() {
            return open::check_may_create(&connection.client).await.map(|()| None);
        }
        open::check_restored(&connection.client).await?;
        if schema.is_current()? {
            open::check_rights(&connection.client).await?;
        }
        deployment::stored(&connection.client, None).await.map(Some)
    }

    /// Fails unless the database answers and accepts writes, and each queue has its connection.
    pub async fn check(&self) -> Result<()> {
        let check = async {
            self.cluster.check(CHECK_TIMEOUT).await?;
            self.readers.query(store::keys::VERSION.postgres, &[]).await
        };
        Ok(within(CHECK_TIMEOUT, check).await.map(drop)?)
    }

    pub fn meters(&self) -> Meters<'_> {
        let writers = [self.pets.meters(), self.messages.meters(), self.orders.meters()];
        Meters {
            writers: writers.into_iter().flatten().chain([self.transitions.meter()]).collect(),
            readers: &self.reader_meter,
            reads: (self.readers.waiting() + self.key_readers.waiting()) as i64,
            connections: self.cluster.connections(),
            standbys: self.cluster.standbys(),
        }
    }

    pub async fn close(&self) {
        tokio::join!(self.pets.close(), self.messages.close(), self.orders.close(), self.transitions.queue.close());
        self.cluster.close();
    }
}

/// Connects without opening the database.
async fn connect(url: &DatabaseUrl, require_standbys: bool) -> Result<Connection> {
    let mut options = Options::new(url.clone()).cluster;
    options.require_standbys = require_standbys;
    Ok(Cluster::connect(&options).await?.1)
}
