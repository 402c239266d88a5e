//! A database, and the connections that a process maintains to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Client;

use super::batch::write::Write;
use super::batch::writer::WriteQueue;
use super::commit::await_commit;
use super::connect::connection::Connection;
use super::connect::connector::{Connector, retry};
use super::connect::options::Options;
use super::connect::pooler::refuse_shared;
use super::error::{CLOSED, Error, Result, within};
use super::observer::Observer;
use super::readers::Readers;
use super::single::SingleWrites;
use super::supervisor::Supervisor;

/// A database on a PostgreSQL server, or on several, one of which accepts writes.
///
/// All connections lead to the same server. If it is lost, they are replaced, and lead to the next server that accepts writes.
#[derive(Debug)]
pub struct Cluster {
    connector: Connector,
    queue: usize,
    /// The connection for everything, with [`Options::one_connection`].
    shared: Option<OnceCell<Arc<Supervisor>>>,
    opened: Mutex<Vec<Opened>>,
    is_closed: AtomicBool,
}

#[derive(Clone, Debug)]
struct Opened {
    purpose: &'static str,
    load: Load,
    connection: Arc<Supervisor>,
}

/// The statements of a connection. The check of the cluster uses the first kind that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Load {
    Single,
    Reads,
    Batches,
}

impl Cluster {
    /// Connects. Also returns the connection, for what must precede the other methods, such as creating tables.
    ///
    /// # Errors
    ///
    /// Attempts begin for 5 s. Fails with [`Error::Unavailable`] if no server accepts writes, and with [`Error::Failed`] if the
    /// server rejects the credentials, its certificate is not trusted, or a pooler shares connections between clients.
    pub async fn connect(options: &Options) -> Result<(Self, Connection)> {
        let connector = Connector::new(options);
        let connect = async || connector.connect().await;
        let (connection, second) = (retry(connect).await?, retry(connect).await?);
        // A pooler may share them with other clients.
        within(connector.limits().open(), refuse_shared(&connection, &second)).await?;
        let shared = options.one_connection.then(OnceCell::new);
        let (queue, opened, is_closed) = (options.queue.max(1), Mutex::default(), AtomicBool::new(false));
        Ok((Self { connector, queue, shared, opened, is_closed }, connection))
    }

    /// Opens a connection for a queue of writes, which stays until the cluster is closed. The log and
    /// [`Cluster::connections`] call it `name`.
    ///
    /// # Errors
    ///
    /// Fails if the server is not reachable, or rejects a statement.
    pub async fn write_queue<W: Write>(
        &self,
        name: &'static str,
        observer: Arc<dyn Observer>,
    ) -> Result<WriteQueue<W>> {
        let supervisor = self.open(&W::statements(), name, Load::Batches).await?;
        Ok(WriteQueue::start(supervisor, self.timeout(), self.queue, observer))
    }

    /// Opens `count` connections for reads, at least 1, on which `statements` are prepared. The log and
    /// [`Cluster::connections`] call them `name`.
    ///
    /// # Errors
    ///
    /// Fails if the server is not reachable, or rejects a statement.
    pub async fn readers(
        &self,
        name: &'static str,
        count: usize,
        statements: &[&'static str],
        observer: Arc<dyn Observer>,
    ) -> Result<Arc<Readers>> {
        let supervisors = try_join_all((0..count.max(1)).map(|_| self.open(statements, name, Load::Reads))).await?;
        Ok(Arc::new(Readers::new(supervisors, self.timeout(), self.queue, observer)))
    }

    /// Opens a connection for single writes, on which `statements` are prepared. The log and [`Cluster::connections`] call it
    /// `name`.
    ///
    /// # Errors
    ///
    /// Fails if the server is not reachable, or rejects a statement.
    pub async fn single_writes(&self, name: &'static str, statements: &[&'static str]) -> Result<SingleWrites> {
        Ok(SingleWrites(self.open(statements, name, Load::Single).await?))
    }

    /// Returns a connection for a purpose. With [`Options::one_connection`], all share one, and only prepare what they run.
    async fn open(&self, statements: &[&'static str], purpose: &'static str, load: Load) -> Result<Arc<Supervisor>> {
        if let Some(shared) = &self.shared {
            let open = async || Supervisor::open(&self.connector, Vec::new(), "shared").await.map(Arc::new);
            return shared.get_or_try_init(open).await.map(Arc::clone);
        }
        let connection = Arc::new(Supervisor::open(&self.connector, statements.to_vec(), purpose).await?);
        let mut opened = self.opened.lock();
        if self.is_closed.load(Ordering::Relaxed) {
            connection.close();
            return Err(Error::Unavailable(CLOSED.into()));
        }
        opened.push(Opened { purpose, load, connection: Arc::clone(&connection) });
        Ok(connection)
    }

    /// Opens a connection of its own, for a long operation. It is neither shared nor replaced.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unavailable`] if the server is not reachable or refuses the connection, or the cluster is closed.
    pub async fn connection(&self) -> Result<Connection> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::Unavailable(CLOSED.into()));
        }
        let refused = |error| Error::Unavailable(format!("no connection to PostgreSQL ({error})"));
        self.connector.connect().await.map_err(refused)
    }

    /// Runs `steps` as a transaction, on a connection of its own. If it ends before its commit, the connection is dropped and
    /// the transaction with it. The server ends a transaction that waits for 5/18 of the timeout between two statements.
    /// [`Options::session`] does not apply.
    ///
    /// # Errors
    ///
    /// Fails with the error of `steps`, and with [`Error::Unknown`] if the transaction may have been committed: only once
    /// `steps` has succeeded.
    pub async fn transaction<T, E: From<Error>>(
        &self,
        steps: impl AsyncFnOnce(&Client) -> Result<T, E>,
    ) -> Result<T, E> {
        let (began, limits) = (Instant::now(), self.connector.limits());
        let limit = limits.operation();
        let connection = within(limit, self.connection()).await?;
        let client = &connection.client;
        let begun = async {
            client.batch_execute(&format!("{}; BEGIN", limits.settings())).await.map_err(Error::from)?;
            steps(client).await
        };
        let outcome = timeout_at(began + limit, begun).await.map_err(|_| connection.give_up(limit))??;
        // After an error that `steps` has ignored, `COMMIT` alone would roll back and succeed.
        await_commit(&connection, began, limit, client.batch_execute("SELECT; COMMIT")).await?;
        Ok(outcome)
    }

    /// Waits for a notification (`NOTIFY`) on a channel that [`Options::session`] listens on, to any connection. Several may be
    /// reported as one. Notifications are lost while a connection is replaced.
    pub async fn notified(&self) {
        self.connector.notified.notified().await;
    }

    /// Checks that the server answers and accepts writes, and that each purpose has a connection, or gets one within `limit`.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unavailable`] otherwise. At once, if the last attempt to reconnect failed.
    pub async fn check(&self, limit: Duration) -> Result<()> {
        within(limit, self.check_until(Instant::now() + limit, limit)).await
    }

    async fn check_until(&self, deadline: Instant, limit: Duration) -> Result<()> {
        let mut opened = self.opened.lock().clone();
        let shared = self.shared.iter().filter_map(OnceCell::get).cloned();
        opened.extend(shared.map(|connection| Opened { purpose: "shared", load: Load::Single, connection }));
        // The check would wait for the commit of a batch.
        opened.sort_by_key(|opened| opened.load);
        for Opened { purpose, connection, .. } in &opened {
            // One of several, as for reads, suffices.
            if !opened.iter().any(|other| other.purpose == *purpose && other.connection.current().is_some()) {
                connection.connection(deadline).await?;
            }
        }
        let Some(prepared) = opened.iter().find_map(|opened| opened.connection.current()) else {
            return self.connection().await.map(drop);
        };
        self.connector.refusal(&prepared, limit).await?.map_or(Ok(()), |why| Err(Error::Unavailable(why)))
    }

    /// Returns for each connection its purpose and whether it is up. Empty with [`Options::one_connection`].
    pub fn connections(&self) -> Vec<(&'static str, bool)> {
        self.opened.lock().iter().map(|opened| (opened.purpose, opened.connection.current().is_some())).collect()
    }

    /// Returns the number of standbys that a commit waits for, and of those that are connected, as of the last check, which
    /// runs each second. For a role without `pg_read_all_stats`, asynchronous ones count as connected, too.
    pub fn standbys(&self) -> [i64; 2] {
        self.connector.standbys.each_ref().map(|number| number.load(Ordering::Relaxed))
    }

    /// Timeout of a read, a write or a transaction: that of the URL.
    pub fn timeout(&self) -> Duration {
        self.connector.limits().operation()
    }

    /// Closes the connections once their statements have ended. Queues are closed before, by [`WriteQueue::close`].
    pub fn close(&self) {
        let opened = self.opened.lock();
        self.is_closed.store(true, Ordering::Relaxed);
        self.shared.iter().filter_map(OnceCell::get).for_each(|shared| shared.close());
        opened.iter().for_each(|opened| opened.connection.close());
    }
}
