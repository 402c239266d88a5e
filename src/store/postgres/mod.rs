//! PostgreSQL: any number of processes on one database or cluster.
//!
//! Every write is one statement, so no transaction is open between two round trips: connections are shared by who
//! asks, nothing is ever half done, and nothing has to be undone. What takes several statements (an import, a move, a new
//! password, the end of an account) has a connection of its own.

pub mod accounts;
mod batch_writer;
mod connection;
mod error;
mod idempotency;
pub mod keys;
pub mod messages;
pub(super) mod migrations;
pub mod orders;
pub mod outbox;
pub mod pets;
mod pooler;
mod read_batcher;
mod readers;
mod rows;
pub mod sessions;
mod supervisor;
mod tls;
mod url;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use batch_writer::{Queue, Writer, await_commit};
use connection::Connection;
use error::timed_out;
use migrations::Schema;
use pets::PetId;
use read_batcher::ReadBatcher;
use readers::Readers;
use supervisor::Supervisor;
pub use url::DatabaseUrl;

use super::{Meters, MigrationStatus, ReaderMeter, Result, StoreError, deployment};
use crate::domain::{Deployment, KeyHash, Message, NewOrder, NewPet, OrderTransition, PetQuery};

/// How long an operation waits for the database, in all: what is not answered by then is `unavailable`.
const OPERATION_TIMEOUT: Duration = Duration::from_millis(1_800);

/// Of it, for a batch to be committed, a synchronous standby's confirmation included: then it is not known what became
/// of it.
const COMMIT_TIMEOUT: Duration = Duration::from_millis(1_500);

/// And for a connection that was just lost to be replaced before a write begins.
const RECONNECT_TIMEOUT: Duration = Duration::from_millis(300);

/// How long a process that starts goes on to try where the server refuses connections or is slow with them: it may be
/// starting too.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Which database, and how much may be asked of it at once.
#[derive(Clone, Debug)]
pub struct Options {
    pub url: DatabaseUrl,
    /// Refused where the database was made for another.
    pub deployment: Option<Deployment>,
    /// What to make a database for where it is empty and `deployment` does not say; nothing where none is made.
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
    /// How many writes of one kind, and how many reads, may wait before further ones are refused.
    pub queue: usize,
    /// How many connections reads share.
    pub readers: usize,
}

impl Default for Settings {
    fn default() -> Self {
        // A connection is a process of the server's, so this is also how many cores reads may take there.
        let readers = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
        Self { queue: 4_096, readers }
    }
}

#[derive(Debug)]
pub struct Postgres {
    url: DatabaseUrl,
    deployment: Deployment,
    /// Of the server that was there at the start.
    version: String,
    readers: Arc<Readers>,
    lists: ReadBatcher<PetQuery>,
    finds: ReadBatcher<PetId>,
    keys: ReadBatcher<KeyHash>,
    /// One connection for key look-ups. Anybody can send many unknown keys, and they must not hold up other reads.
    key_readers: Arc<Readers>,
    pets: Writer<NewPet>,
    messages: Writer<Message>,
    orders: Writer<NewOrder>,
    keyed_transitions: Queue<OrderTransition>,
    /// For writes that are too rare to be worth a batch.
    single: Supervisor,
    keys_changed: Arc<Notify>,
}

impl Postgres {
    /// Connects to a database, makes its tables where allowed, and brings its schema up to date.
    pub async fn open(options: &Options) -> Result<Self> {
        let Options { url, settings, .. } = options;
        let mut connection = connect_at_start(url).await?;
        let deployment = prepare(&mut connection.client, options).await?;
        let version = setting(&connection.client, "server_version").await?;
        let keys_changed = Arc::new(Notify::new());
        let meter = Arc::<ReaderMeter>::default();
        let reads =
            [pets::READS, orders::READS, messages::READS, outbox::READS, accounts::READS, sessions::READS, keys::READS]
                .concat();
        let writes =
            [orders::WRITES, outbox::WRITES, accounts::WRITES, sessions::WRITES, keys::WRITES, idempotency::WRITES]
                .concat();
        let one_reader = Settings { readers: 1, ..*settings };
        let (readers, key_readers, pets, messages, orders, keyed_transitions, single) = tokio::try_join!(
            Readers::open(url, &keys_changed, settings, &meter, &reads, "read"),
            Readers::open(url, &keys_changed, &one_reader, &meter, keys::LOOKUPS, "keys"),
            Writer::open(url, &keys_changed, settings, ["animals", "animals with idempotency keys"]),
            Writer::open(url, &keys_changed, settings, ["messages", "messages with idempotency keys"]),
            Writer::open(url, &keys_changed, settings, ["orders", "orders with idempotency keys"]),
            Queue::open_keyed(url, &keys_changed, settings, "order transitions with idempotency keys"),
            Supervisor::open(url, &keys_changed, writes, "accounts and keys"),
        )?;
        let (readers, key_readers) = (Arc::new(readers), Arc::new(key_readers));
        Ok(Self {
            url: url.clone(),
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
            keys_changed,
        })
    }

    /// Which migrations a database has and lacks, without changing it.
    pub async fn migration_status(url: &DatabaseUrl) -> Result<Vec<MigrationStatus>> {
        let connection = connect_at_start(url).await?;
        if Schema::read(&connection.client).await?.is_new() {
            return Err(no_tables());
        }
        migrations::status(&connection.client).await
    }

    pub const fn deployment(&self) -> Deployment {
        self.deployment
    }

    /// The server's version, without what its packager adds: "17.2".
    pub fn server_version(&self) -> &str {
        self.version.split(' ').next().unwrap_or_default()
    }

    /// Carries out a write of one statement. It is sent whole before the first wait for an answer, so a caller that
    /// goes away leaves nothing half done.
    async fn write(&self, sql: &'static str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let prepared = self.single.connection(Instant::now() + RECONNECT_TIMEOUT).await?;
        let rows = prepared.query(sql, parameters);
        await_commit(&prepared.connection, Instant::now() + COMMIT_TIMEOUT, rows).await
    }

    /// Carries out a transaction, on a connection of its own. Whatever ends it before its commit, the connection goes with
    /// it, and nothing was done.
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

    /// A connection for what takes long.
    pub(super) async fn connect(&self) -> Result<Connection> {
        if !self.single.is_open() {
            return Err(StoreError::Unavailable("the store is closed".into()));
        }
        Ok(Connection::open(&self.url, Arc::default()).await?.0)
    }

    /// Waits until another process, or this one, may have changed a key.
    pub async fn keys_changed(&self) {
        self.keys_changed.notified().await;
    }

    /// Whether the database answers and takes writes.
    pub async fn check(&self) -> Result<()> {
        let check = async {
            let prepared = self.single.connection(Instant::now() + OPERATION_TIMEOUT).await?;
            match prepared.accepts_writes(OPERATION_TIMEOUT).await? {
                true => keys::version(self).await.map(|_| ()),
                false => Err(StoreError::Unavailable("the server takes no writes".into())),
            }
        };
        timeout(OPERATION_TIMEOUT, check).await.unwrap_or_else(|_| Err(timed_out(OPERATION_TIMEOUT)))
    }

    pub fn meters(&self) -> Meters<'_> {
        let (readers, reads) = (self.readers.meter(), self.readers.waiting() + self.key_readers.waiting());
        let mut meters = Meters { writers: Vec::new(), readers, reads, connections: Vec::new() };
        meters.connections.extend(self.readers.are_up().map(|up| ("reads", up)));
        meters.connections.extend(self.key_readers.are_up().map(|up| ("keys", up)));
        meters.connections.push(("accounts", self.single.watch().is_up()));
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

async fn connect_at_start(url: &DatabaseUrl) -> Result<Connection> {
    retry_at_start(async || {
        let connection = Connection::open(url, Arc::default()).await?.0;
        pooler::refuse_shared(&connection, url).await?;
        Ok(connection)
    })
    .await
}

/// Opens something by `open`, and again where the server is out of reach.
async fn retry_at_start<T>(open: impl AsyncFn() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match open().await {
            Err(StoreError::Unavailable(_)) if Instant::now() < deadline => sleep(Duration::from_millis(100)).await,
            outcome => return outcome,
        }
    }
}

/// Migrates, and settles what the database is for.
async fn prepare(client: &mut Client, options: &Options) -> Result<Deployment> {
    let encoding = setting(client, "server_encoding").await?;
    if encoding != "UTF8" {
        return Err(StoreError::Failed(format!(
            "the database's encoding is {encoding}: make one with ENCODING 'UTF8'"
        )));
    }
    if setting(client, "fsync").await? == "off" {
        tracing::warn!("PostgreSQL runs with fsync = off: a crash may lose writes that were answered");
    }
    // `reset_val` is the value without this connection's own `SET`.
    let chosen = "SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'";
    let chosen = client.query_one(chosen, &[]).await?;
    let chosen: &str = chosen.try_get(0)?;
    if matches!(chosen, "off" | "local") {
        tracing::warn!("PostgreSQL is set to synchronous_commit = {chosen}, petstore commits with on");
    }
    let schema = Schema::read(client).await?;
    if schema.is_new() && options.create.is_none() {
        return Err(no_tables());
    }
    if !schema.is_current()? {
        migrations::run(client).await?;
    }
    let chosen = options.deployment.or(options.create).unwrap_or(Deployment::Production);
    let insert = "INSERT INTO meta (key, value) VALUES ('deployment', $1) ON CONFLICT (key) DO NOTHING";
    client.execute(insert, &[&chosen.as_str()]).await?;
    let kept = client.query_one("SELECT value FROM meta WHERE key = 'deployment'", &[]).await?;
    let kept: &str = kept.try_get(0)?;
    deployment::agree(deployment::parse(kept)?, options.deployment)
}

async fn setting(client: &Client, name: &str) -> Result<String> {
    Ok(client.query_one("SELECT current_setting($1)", &[&name]).await?.try_get(0)?)
}

fn no_tables() -> StoreError {
    StoreError::Failed("there are no tables of petstore; `petstore serve` or `petstore quickstart` makes them".into())
}
