//! PostgreSQL: any number of processes on one database or cluster.
//!
//! Every write is one statement, so no transaction is open between two round trips. Requests therefore share connections,
//! and nothing has to be rolled back. Operations of several statements (an import, a copy, a new password, deleting an
//! account) open their own connection.

pub(super) mod database;
pub(super) mod engine;
pub(super) mod keyed;
pub(super) mod migrations;
mod open;
pub(super) mod rows;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{Instant, timeout};

pub use crate::store::messages::postgres_outbox::RelayLease;
pub use database::Postgres;
use engine::batch::reads::ReadBatcher;
use engine::batch::writer::{WriteQueue, WriteQueues};
use engine::connect::connection::Connector;
use engine::connect::error::timed_out;
pub(super) use engine::connect::error::within;
use engine::connect::limits::CHECK_TIMEOUT;
pub use engine::connect::limits::Limits;
pub use engine::connect::settings::{Options, ProcessKind};
pub use engine::connect::url::DatabaseUrl;
use engine::connections::Connections;
use engine::readers::Readers;
use migrations::Schema;
pub(super) use rows::LONG;

use super::{Meters, MigrationStatus, ReaderMeter, Result, StoreError, deployment};
use crate::domain::Deployment;

impl Postgres {
    /// Connects to a database, creates its tables if `options` allow that, and migrates it.
    pub async fn open(options: &Options) -> Result<Self> {
        let &Options { queue, readers, process, require_standbys, .. } = options;
        let connector = Connector::new(&options.url, require_standbys);
        let mut connection = open::connect(&connector).await?;
        let deployment = open::prepare(&mut connection.client, options).await?;
        let id = connection.client.query_opt(deployment::FIND_ID, &[]).await?.map(|row| row.try_get(0)).transpose()?;
        let version = open::setting(&connection.client, "server_version").await?;
        let connections = Connections::new(connector, process).await?;
        let meter = Arc::<ReaderMeter>::default();
        let statements = [
            crate::store::pets::postgres::STATEMENTS,
            crate::store::orders::postgres::STATEMENTS,
            crate::store::messages::postgres::STATEMENTS,
            crate::store::messages::postgres_outbox::STATEMENTS,
            crate::store::accounts::postgres::STATEMENTS,
            crate::store::accounts::postgres_sessions::STATEMENTS,
            crate::store::keys::postgres::STATEMENTS,
            crate::store::idempotency::postgres::STATEMENTS,
            crate::store::reset::postgres::STATEMENTS,
            crate::store::audit::postgres::STATEMENTS,
        ]
        .concat();
        let (readers, key_readers, pets, messages, orders, transitions, single) = tokio::try_join!(
            Readers::open(&connections, readers, queue, &meter, &statements, "reads"),
            Readers::open(&connections, 1, queue, &meter, &[crate::store::keys::postgres::FIND], "keys"),
            WriteQueues::open(&connections, queue, ["animals", "animals_keyed"]),
            WriteQueues::open(&connections, queue, ["messages", "messages_keyed"]),
            WriteQueues::open(&connections, queue, ["orders", "orders_keyed"]),
            WriteQueue::open_keyed(&connections, queue, "order_transitions"),
            connections.open(&statements, "single"),
        )?;
        let (readers, key_readers) = (Arc::new(readers), Arc::new(key_readers));
        Ok(Self {
            connections,
            deployment,
            id: deployment::id(id),
            version,
            lists: ReadBatcher::start(&readers, queue),
            finds: ReadBatcher::start(&readers, queue),
            keys: ReadBatcher::start(&key_readers, queue),
            readers,
            key_readers,
            pets,
            messages,
            orders,
            transitions,
            single,
            counting: Arc::default(),
        })
    }

    /// Lists the migrations of a database without changing it.
    pub async fn migration_status(url: &DatabaseUrl) -> Result<Vec<MigrationStatus>> {
        let connection = open::connect(&Connector::new(url, false)).await?;
        if Schema::read(&connection.client).await?.is_new() {
            return Err(open::no_tables());
        }
        migrations::status(&connection.client).await
    }

    /// Returns the deployment of a database without changing it. `None` if it has no tables yet.
    pub async fn stored_deployment(url: &DatabaseUrl) -> Result<Option<Deployment>> {
        let connection = open::connect(&Connector::new(url, false)).await?;
        match Schema::read(&connection.client).await?.is_new() {
            true => Ok(None),
            false => open::stored_deployment(&connection.client, None).await.map(Some),
        }
    }

    /// Returns the deployment like [`Self::stored_deployment`]. Fails if a service could not open the database.
    pub async fn check_openable(url: &DatabaseUrl, require_standbys: bool) -> Result<Option<Deployment>> {
        let connection = open::connect(&Connector::new(url, require_standbys)).await?;
        open::check_encoding(&connection.client).await?;
        let schema = Schema::read(&connection.client).await?;
        if schema.is_new() {
            return open::check_may_create(&connection.client).await.map(|()| None);
        }
        if schema.is_current()? {
            open::check_rights(&connection.client).await?;
        }
        open::stored_deployment(&connection.client, None).await.map(Some)
    }

    pub const fn deployment(&self) -> Deployment {
        self.deployment
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// The server's version without the packager's suffix, such as "17.2".
    pub fn server_version(&self) -> &str {
        self.version.split(' ').next().unwrap_or_default()
    }

    /// Waits until any process may have changed a key.
    pub async fn keys_changed(&self) {
        self.connections.connector.keys_changed.notified().await;
    }

    /// Fails unless the database answers and accepts writes, and each queue has its connection.
    pub async fn check(&self) -> Result<()> {
        let check = async {
            let deadline = Instant::now() + CHECK_TIMEOUT;
            let prepared = self.single.connection(deadline).await?;
            if let Some(why) = prepared.refusal(CHECK_TIMEOUT).await? {
                return Err(StoreError::Unavailable(why));
            }
            self.keys_version().await?;
            self.connections.wait_for_each(deadline).await
        };
        timeout(CHECK_TIMEOUT, check).await.unwrap_or_else(|_| Err(timed_out(CHECK_TIMEOUT)))
    }

    pub fn meters(&self) -> Meters<'_> {
        let (readers, reads) = (self.readers.meter(), self.readers.waiting() + self.key_readers.waiting());
        let connections = self.connections.are_up();
        let standbys = self.connections.connector.standbys.each_ref().map(|number| number.load(Ordering::Relaxed));
        let mut meters = Meters { writers: Vec::new(), readers, reads, connections, standbys };
        self.pets.add_to(&mut meters);
        self.messages.add_to(&mut meters);
        self.orders.add_to(&mut meters);
        self.transitions.add_to(&mut meters);
        meters
    }

    pub async fn close(&self) {
        tokio::join!(self.pets.close(), self.messages.close(), self.orders.close(), self.transitions.close());
        self.connections.close();
    }
}
