//! One connection to the server, and the statements prepared on it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt as _};
use rustls::ClientConfig;
use tokio::sync::{Mutex, Notify};
use tokio::task::{AbortHandle, JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Row, SimpleQueryMessage, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{timed_out, within};
use super::limits::Limits;
use super::server::{Driver, IDENTIFY, OneServer, Server};
use super::tls;
use super::url::DatabaseUrl;
use crate::store::{Result, StoreError};

/// Settings of every connection. They override those of the server, the role, the database and the URL.
///
/// Warnings must arrive, because an answer may depend on one (see [`Connection::warnings`]). `synchronous_commit` is at
/// least `on`, or `remote_write` or `remote_apply` if the operator chose that. It is set to its own value too, because
/// a later change of the server's configuration must not reach this connection. The isolation level lets each statement
/// of a transaction see what was committed before it.
const DURABLE: &str = "SET client_min_messages = warning; SET default_transaction_isolation = 'read committed';
    SELECT set_config('synchronous_commit', CASE WHEN chosen IN ('off', 'local') THEN 'on' ELSE chosen END, false)
    FROM current_setting('synchronous_commit') AS chosen";

/// Plans are made once and use indexes: with them it does not matter how large a table was when its plan was made.
/// `enable_seqscan = off` adds 10^10 to the estimated cost of any plan that has to read a table, such as the one that
/// deletes ended sessions. PostgreSQL would compile those with LLVM, which can take seconds on a busy machine.
const SETTINGS: &str =
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off;
    LISTEN petstore_keys";

/// A connection, driven by its own task.
///
/// It closes when its client is dropped and all responses have arrived, or at once by [`Connection::discard`].
#[derive(Debug)]
pub struct Connection {
    pub client: Client,
    warnings: Arc<AtomicU64>,
    driver: AbortHandle,
    discarded: AtomicBool,
}

/// A connection that is not in use yet. Closed on drop.
struct Offer {
    server: Server,
    client: Client,
    warnings: Arc<AtomicU64>,
    driver: Driver,
}

/// Opens connections to one database.
#[derive(Clone, Debug)]
pub struct Connector {
    url: DatabaseUrl,
    /// The statement that checks the server, before a connection is used and by [`PreparedConnection::refusal`].
    check: &'static str,
    /// Signalled when the server notifies of a changed key.
    pub keys_changed: Arc<Notify>,
    /// Signalled when a lost or old connection has been replaced.
    pub reopened: Arc<Notify>,
    /// The server of all connections.
    server: Arc<OneServer>,
    /// The standbys that a commit waits for, and those that are connected, as of the last check.
    pub standbys: Arc<[AtomicI64; 2]>,
    /// The read of the certificate authorities in progress.
    reading: Arc<Mutex<Option<JoinHandle<Result<ClientConfig>>>>>,
}

impl Connector {
    /// `require_standbys` rejects a server unless as many standbys are connected to it as a commit waits for.
    pub fn new(url: &DatabaseUrl, require_standbys: bool) -> Self {
        let (keys_changed, reopened, server, standbys, reading) = Default::default();
        let check = if require_standbys { WITH_STANDBYS } else { WRITABLE };
        Self { url: url.clone(), check, keys_changed, reopened, server, standbys, reading }
    }

    pub const fn limits(&self) -> Limits {
        self.url.limits
    }

    /// Connects to the server that this process uses. All hosts are tried at once, so that one that hangs delays nothing.
    /// If none of them is that server, another may be chosen. Also returns the task that drives the connection.
    pub async fn connect(&self) -> Result<(Connection, JoinHandle<()>)> {
        self.open(false).await
    }

    async fn open(&self, is_supervised: bool) -> Result<(Connection, JoinHandle<()>)> {
        let limits = self.limits();
        let hangs = |_| StoreError::Unavailable(format!("sslrootcert cannot be read within {:?}", limits.open()));
        let tls = MakeRustlsConnect::new(timeout(limits.open(), self.tls()).await.map_err(hangs)??);
        self.server.attempt();
        let mut answers: FuturesUnordered<_> =
            self.url.hosts().iter().map(|host| Box::pin(self.clone().try_host(host.clone(), tls.clone()))).collect();
        let (mut offers, mut failure) = (Vec::<Box<Offer>>::new(), timed_out(limits.open()));
        let mut deadline = Instant::now() + limits.open();
        while let Ok(Some(answer)) = timeout_at(deadline, answers.next()).await {
            match answer {
                Ok(offer) => match self.admit(offer, is_supervised) {
                    Ok(admitted) => {
                        offers.iter().for_each(|offer| self.server.refuse(&offer.server));
                        tokio::spawn(timeout(limits.connect(), self.clone().refuse(answers)));
                        return Ok(admitted);
                    }
                    Err(offer) => {
                        deadline = deadline.min(Instant::now() + limits.connect());
                        offers.push(offer);
                    }
                },
                Err(error) => failure = error,
            }
        }
        if !offers.is_empty() {
            self.server.elect(offers.iter().map(|offer| &offer.server), limits.grace())?;
        }
        for offer in offers {
            if let Ok(admitted) = self.admit(offer, is_supervised) {
                return Ok(admitted);
            }
        }
        Err(failure)
    }

    /// Connects to one host, unless it accepts no writes or lacks standbys that are required.
    async fn try_host(self, mut host: Config, tls: MakeRustlsConnect) -> Result<Box<Offer>> {
        if host.get_connect_timeout().is_none() {
            host.connect_timeout(self.limits().connect());
        }
        let (client, connection) = host.connect(tls).await?;
        let warnings = Arc::new(AtomicU64::new(0));
        let mut driver: Driver = Box::pin(drive(connection, Arc::clone(&warnings), Arc::clone(&self.keys_changed)));
        let configure = format!("{DURABLE}; {}; {IDENTIFY}", self.check);
        let response = tokio::select! {
            response = client.simple_query(&configure) => response?,
            () = &mut driver => return Err(StoreError::Unavailable("PostgreSQL closed the connection".into())),
        };
        let mut rows = response.iter().rev().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let server = rows.next().and_then(Server::parse);
        let server = server.ok_or_else(|| StoreError::Failed("PostgreSQL does not identify itself".into()))?;
        if let Some(why) = rows.next().and_then(|row| row.get(0)) {
            return Err(StoreError::Unavailable(why.into()));
        }
        Ok(Box::new(Offer { server, client, warnings, driver }))
    }

    /// Logs servers that accept writes beside the one in use, and answer later.
    async fn refuse(self, mut answers: impl Stream<Item = Result<Box<Offer>>> + Unpin) {
        while let Some(answer) = answers.next().await {
            answer.iter().for_each(|offer| self.server.refuse(&offer.server));
        }
    }

    fn admit(
        &self,
        offer: Box<Offer>,
        is_supervised: bool,
    ) -> std::result::Result<(Connection, JoinHandle<()>), Box<Offer>> {
        let Offer { server, client, warnings, driver } = *offer;
        match self.server.admit(&server, driver, is_supervised) {
            Ok(driver) => {
                let discarded = AtomicBool::new(false);
                Ok((Connection { client, warnings, driver: driver.abort_handle(), discarded }, driver))
            }
            Err(driver) => Err(Box::new(Offer { server, client, warnings, driver })),
        }
    }

    /// Reads the certificate authorities on a blocking thread, because their mount may hang. Connection attempts share a
    /// read that hangs, so that it occupies only one thread.
    async fn tls(&self) -> Result<ClientConfig> {
        let settings = self.url.tls();
        if !settings.has_authorities() {
            return settings.read();
        }
        let mut reading = self.reading.lock().await;
        let read = reading.get_or_insert_with(|| {
            let settings = settings.clone();
            spawn_blocking(move || settings.read())
        });
        let config = read.await;
        *reading = None;
        config.map_err(|error| StoreError::Failed(error.to_string()))?
    }

    /// Connects and prepares `statements`, all in one round trip.
    pub async fn prepare(&self, statements: &[&'static str]) -> Result<(Arc<PreparedConnection>, JoinHandle<()>)> {
        let (connection, driver) = self.open(true).await?;
        let client = &connection.client;
        let limits = self.limits();
        let prepared = within(limits.open(), async {
            client.batch_execute(&format!("{SETTINGS}; {}", limits.settings())).await?;
            let prepare = async |sql| Ok::<_, Error>((sql, client.prepare(sql).await?));
            try_join_all(statements.iter().copied().chain([self.check]).map(prepare)).await
        });
        let statements = prepared.await.inspect_err(|_| connection.discard())?.into_iter().collect();
        let (check, standbys) = (self.check, Arc::clone(&self.standbys));
        Ok((Arc::new(PreparedConnection { connection, statements, check, standbys }), driver))
    }
}

impl Connection {
    /// Number of warnings that the server has sent on this connection.
    ///
    /// If a commit's wait for the synchronous standby is cancelled, PostgreSQL reports success after a warning. A write
    /// during which this number has grown may therefore be lost.
    pub fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Acquire)
    }

    /// Fails if the server has sent warnings since [`Connection::warnings`] returned `before`.
    pub fn not_warned_since(&self, before: u64) -> Result<()> {
        match self.warnings() == before {
            true => Ok(()),
            false => Err(StoreError::Unavailable(
                "PostgreSQL sent a warning during a write, which may not be durable".into(),
            )),
        }
    }

    /// Closes the connection at once. Statements in progress are not cancelled, because a commit that timed out here may
    /// still succeed.
    pub fn discard(&self) {
        self.discarded.store(true, Ordering::Release);
        self.driver.abort();
    }

    pub fn is_usable(&self) -> bool {
        !self.discarded.load(Ordering::Acquire) && !self.client.is_closed()
    }
}

async fn drive(
    mut connection: tokio_postgres::Connection<Socket, tls::Stream>,
    warnings: Arc<AtomicU64>,
    keys_changed: Arc<Notify>,
) {
    while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            // Counted before the response that follows is delivered.
            AsyncMessage::Notice(notice) if notice.parsed_severity() == Some(Severity::Warning) => {
                warnings.fetch_add(1, Ordering::Release);
                tracing::warn!(warning = notice.message(), "PostgreSQL sent a warning");
            }
            AsyncMessage::Notification(_) => keys_changed.notify_one(),
            _ => {}
        }
    }
}

/// Selects the reason why the server must not be used, or NULL, the number of standbys that a commit waits for, and those that
/// are connected. A demoted server still answers reads, with old data.
///
/// Only a role with `pg_read_all_stats` sees which of the connected standbys are synchronous. For others, all count.
macro_rules! check {
    ($standbys:literal) => {
        concat!(
            "SELECT CASE WHEN current_setting('transaction_read_only') = 'on' THEN 'the server no longer accepts writes'",
            $standbys,
            r" END, wanted, connected FROM (SELECT
                CASE WHEN names = '' THEN 0 ELSE coalesce(substring(names FROM '(\d+)\s*\(')::bigint, 1) END AS wanted,
                (SELECT count(*) FROM pg_stat_replication WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum'))
                    AS connected
                FROM current_setting('synchronous_standby_names') AS names) AS standbys"
        )
    };
}

const WRITABLE: &str = check!("");

/// Like [`WRITABLE`], and checks that as many standbys are connected as a commit waits for. The server disconnects silent
/// ones after `wal_sender_timeout`, so an isolated primary fails this check before reads become stale for long.
const WITH_STANDBYS: &str = check!(" WHEN connected < wanted THEN 'too few standbys are connected to the server'");

/// A connection on which a service's statements are prepared, so that no request pays for that, also after a fail-over.
/// Concurrent requests share it, and the server answers them in turn.
#[derive(Debug)]
pub struct PreparedConnection {
    pub connection: Connection,
    statements: HashMap<&'static str, Statement>,
    check: &'static str,
    standbys: Arc<[AtomicI64; 2]>,
}

impl PreparedConnection {
    /// Runs a statement. If it is prepared, it is sent whole before the first wait, so a caller that goes away leaves nothing
    /// half done.
    pub async fn query(
        &self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> std::result::Result<Vec<Row>, Error> {
        let statement = self.statements.get(sql);
        debug_assert!(statement.is_some() || !self.is_of_service(), "missing from the list of statements: {sql}");
        match statement {
            Some(statement) => self.connection.client.query(statement, parameters).await,
            // Preparing it costs each call a round trip.
            None => Box::pin(self.connection.client.query(sql, parameters)).await,
        }
    }

    /// Returns whether more than the check is prepared.
    pub fn is_of_service(&self) -> bool {
        self.statements.len() > 1
    }

    /// Returns the reason why the server must not be used, or `None` if it may.
    pub async fn refusal(&self, limit: Duration) -> Result<Option<String>> {
        let checked = timeout(limit, self.query(self.check, &[])).await.map_err(|_| timed_out(limit))?;
        match checked {
            // The check has come between a batch that failed and its `ROLLBACK`.
            Err(error) if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) => Ok(None),
            rows => {
                let rows = rows?;
                let Some(row) = rows.first() else { return Ok(None) };
                for (column, number) in (1..).zip(&*self.standbys) {
                    number.store(row.try_get(column)?, Ordering::Relaxed);
                }
                Ok(row.try_get(0)?)
            }
        }
    }
}
