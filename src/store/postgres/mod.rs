//! PostgreSQL: any number of processes on one database or cluster.
//!
//! Every write is one statement, so no transaction is open between two round trips. Requests therefore share connections,
//! and nothing has to be rolled back. Operations of several statements (an import, a copy, a new password, deleting an
//! account) open their own connection.

mod accounts;
mod batch_writer;
mod connection;
mod error;
mod idempotency;
mod keys;
mod messages;
pub(super) mod migrations;
mod open;
mod orders;
mod outbox;
mod pets;
mod pooler;
mod read_batcher;
mod readers;
mod rows;
mod server;
mod sessions;
mod supervisor;
mod tls;
mod url;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use batch_writer::{WriteQueue, WriteQueues, await_commit};
use connection::{Connection, Connector};
use error::timed_out;
use migrations::Schema;
pub use outbox::RelayLease;
use pets::PetId;
use read_batcher::ReadBatcher;
use readers::Readers;
use supervisor::Supervisor;
pub use url::DatabaseUrl;

use super::{Meters, MigrationStatus, ReaderMeter, Result, StoreError};
use crate::domain::{Deployment, KeyHash, Message, NewOrder, NewPet, OrderTransition, PetQuery};

/// Timeout of an operation. It then fails as `Unavailable`.
const OPERATION_TIMEOUT: Duration = Duration::from_millis(1_800);

/// Timeout of the readiness check. Below a second, because probes often give up after that time.
const CHECK_TIMEOUT: Duration = Duration::from_millis(800);

/// Part of an operation's timeout for a commit, including the confirmation of a synchronous standby. After that, the outcome
/// is unknown.
const COMMIT_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Part of an operation's timeout for a write to wait until a lost connection is replaced.
const RECONNECT_TIMEOUT: Duration = Duration::from_millis(300);

/// Location and limits of a database.
#[derive(Clone, Debug)]
pub struct Options {
    pub url: DatabaseUrl,
    /// The expected deployment. A database created for another is rejected.
    pub deployment: Option<Deployment>,
    /// The deployment for a new database if `deployment` is `None`. If `None`, no database is created.
    pub create: Option<Deployment>,
    pub settings: Settings,
}

impl Options {
    pub fn new(url: DatabaseUrl) -> Self {
        Self { url, deployment: None, create: Some(Deployment::Production), settings: Settings::default() }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Maximum number of waiting writes of one kind, and of waiting reads. Further ones are rejected.
    pub queue: usize,
    /// Number of connections for reads.
    pub readers: usize,
    /// Rejects reads and writes unless as many standbys are connected to the server as a commit waits for.
    pub require_standbys: bool,
}

impl Default for Settings {
    fn default() -> Self {
        // Each connection is a process of the server, so this also limits the cores that reads use there.
        let readers = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
        Self { queue: 4_096, readers, require_standbys: false }
    }
}

#[derive(Debug)]
pub struct Postgres {
    connector: Connector,
    deployment: Deployment,
    /// Version of the server at start.
    version: String,
    readers: Arc<Readers>,
    lists: ReadBatcher<PetQuery>,
    finds: ReadBatcher<PetId>,
    keys: ReadBatcher<KeyHash>,
    /// One connection for key lookups, so that a flood of unknown keys does not delay other reads.
    key_readers: Arc<Readers>,
    pets: WriteQueues<NewPet>,
    messages: WriteQueues<Message>,
    orders: WriteQueues<NewOrder>,
    keyed_transitions: WriteQueue<OrderTransition>,
    /// Connection for writes that are too rare for a batch.
    single: Supervisor,
}

impl Postgres {
    /// Connects to a database, creates its tables if `options` allow that, and migrates it.
    pub async fn open(options: &Options) -> Result<Self> {
        let settings = &options.settings;
        let connector = Connector::new(&options.url, settings.require_standbys);
        let mut connection = open::connect(&connector).await?;
        let deployment = open::prepare(&mut connection.client, options).await?;
        let version = open::setting(&connection.client, "server_version").await?;
        let meter = Arc::<ReaderMeter>::default();
        let reads =
            [pets::READS, orders::READS, messages::READS, outbox::READS, accounts::READS, sessions::READS, keys::READS]
                .concat();
        let writes =
            [orders::WRITES, outbox::WRITES, accounts::WRITES, sessions::WRITES, keys::WRITES, idempotency::WRITES]
                .concat();
        let one_reader = Settings { readers: 1, ..*settings };
        let (readers, key_readers, pets, messages, orders, keyed_transitions, single) = tokio::try_join!(
            Readers::open(&connector, settings, &meter, &reads, "read"),
            Readers::open(&connector, &one_reader, &meter, keys::LOOKUPS, "keys"),
            WriteQueues::open(&connector, settings, ["animals", "animals with idempotency keys"]),
            WriteQueues::open(&connector, settings, ["messages", "messages with idempotency keys"]),
            WriteQueues::open(&connector, settings, ["orders", "orders with idempotency keys"]),
            WriteQueue::open_keyed(&connector, settings, "order transitions with idempotency keys"),
            Supervisor::open(&connector, writes, "accounts and keys"),
        )?;
        let (readers, key_readers) = (Arc::new(readers), Arc::new(key_readers));
        Ok(Self {
            connector,
            deployment,
            version,
            lists: ReadBatcher::start(&readers, settings),
            finds: ReadBatcher::start(&readers, settings),
            keys: ReadBatcher::start(&key_readers, &one_reader),
            readers,
            key_readers,
            pets,
            messages,
            orders,
            keyed_transitions,
            single,
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

    pub const fn deployment(&self) -> Deployment {
        self.deployment
    }

    /// The server's version without the packager's suffix, such as "17.2".
    pub fn server_version(&self) -> &str {
        self.version.split(' ').next().unwrap_or_default()
    }

    /// Executes a write of one statement.
    async fn write(&self, sql: &'static str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let prepared = self.single.connection(Instant::now() + RECONNECT_TIMEOUT).await?;
        let rows = prepared.query(sql, parameters);
        await_commit(&prepared.connection, Instant::now() + COMMIT_TIMEOUT, rows).await
    }

    /// Executes a transaction on its own connection. If it ends before its commit, the connection is dropped and the
    /// transaction with it.
    async fn write_steps<T>(&self, steps: impl AsyncFnOnce(&Client) -> std::result::Result<T, Error>) -> Result<T> {
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        let connection = timeout_at(deadline, self.connect()).await.map_err(|_| timed_out(OPERATION_TIMEOUT))??;
        let client = &connection.client;
        await_commit(&connection, deadline, async {
            client.batch_execute("BEGIN").await?;
            let outcome = steps(client).await?;
            client.batch_execute("COMMIT").await?;
            Ok(outcome)
        })
        .await
    }

    /// Opens a connection for a long operation.
    pub(super) async fn connect(&self) -> Result<Connection> {
        if !self.single.is_open() {
            return Err(StoreError::Unavailable("the store is closed".into()));
        }
        Ok(self.connector.connect().await?.0)
    }

    /// Waits until any process may have changed a key.
    pub async fn keys_changed(&self) {
        self.connector.keys_changed.notified().await;
    }

    /// Fails unless the database answers and accepts writes.
    pub async fn check(&self) -> Result<()> {
        let check = async {
            let prepared = self.single.connection(Instant::now() + CHECK_TIMEOUT).await?;
            match prepared.refusal(CHECK_TIMEOUT).await? {
                None => self.keys_version().await.map(|_| ()),
                Some(why) => Err(StoreError::Unavailable(why)),
            }
        };
        timeout(CHECK_TIMEOUT, check).await.unwrap_or_else(|_| Err(timed_out(CHECK_TIMEOUT)))
    }

    pub fn meters(&self) -> Meters<'_> {
        let (readers, reads) = (self.readers.meter(), self.readers.waiting() + self.key_readers.waiting());
        let mut meters = Meters { writers: Vec::new(), readers, reads, connections: Vec::new() };
        meters.connections.extend(self.readers.are_up().map(|up| ("reads", up)));
        meters.connections.extend(self.key_readers.are_up().map(|up| ("keys", up)));
        meters.connections.push(("accounts", self.single.is_up()));
        let mut add = |name, (meter, up)| {
            meters.writers.push((name, meter));
            meters.connections.push((name, up));
        };
        add("animals", self.pets.plain.status());
        add("animals_keyed", self.pets.keyed.status());
        add("messages", self.messages.plain.status());
        add("messages_keyed", self.messages.keyed.status());
        add("orders", self.orders.plain.status());
        add("orders_keyed", self.orders.keyed.status());
        add("order_transitions_keyed", self.keyed_transitions.status());
        meters
    }

    pub async fn close(&self) {
        tokio::join!(self.pets.close(), self.messages.close(), self.orders.close(), self.keyed_transitions.close());
        self.single.close();
        self.readers.close();
        self.key_readers.close();
    }
}
