//! Opens connections to one server, and configures them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt as _};
use rustls::ClientConfig;
use tokio::sync::{Mutex, Notify};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::{AsyncMessage, Client, Config, SimpleQueryMessage, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::connection::{Connection, PreparedConnection, WITH_STANDBYS, WRITABLE};
use super::limits::Limits;
use super::options::Options;
use super::server::{Driver, IDENTIFY, OneServer, Server};
use super::tls;
use super::url::DatabaseUrl;
use crate::error::{Error, Result, timed_out, within};

/// Settings of every connection. They override those of the server, the role, the database and the URL.
///
/// Warnings must arrive, because an answer may depend on one (see [`Connection::warnings`]). `synchronous_commit` is at
/// least `on`, or `remote_write` or `remote_apply` if the operator chose that. It is set to its own value too, because
/// a later change of the server's configuration must not reach this connection. The isolation level lets each statement
/// of a transaction see what was committed before it. Statements have the limits of this process: see [`Limits::settings`]. A
/// statement fails if row-level security would hide rows from it.
const DURABLE: &str = "SET client_min_messages = warning; SET default_transaction_isolation = 'read committed';
    SET statement_timeout = 0; SET lock_timeout = 0; SET row_security = off;
    SELECT set_config('synchronous_commit', CASE WHEN chosen IN ('off', 'local') THEN 'on' ELSE chosen END, false)
    FROM current_setting('synchronous_commit') AS chosen";

/// Limit of a starting process's attempts to connect: the server may be starting too.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// The last warning, without its numbers. Those that do not concern a commit, such as that of a trigger, are logged once in a
/// row: each connection may get the same one.
static LAST_WARNING: parking_lot::Mutex<String> = parking_lot::Mutex::new(String::new());

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
    application_name: String,
    session: String,
    /// The statement that checks the server, before a connection is used and by [`Self::refusal`].
    check: &'static str,
    /// Signalled by each notification of the server.
    pub notified: Arc<Notify>,
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
    pub fn new(options: &Options) -> Self {
        let Options { url, application_name, session, require_standbys, .. } = options.clone();
        let (notified, reopened, server, standbys, reading) = Default::default();
        let check = if require_standbys { WITH_STANDBYS } else { WRITABLE };
        Self { url, application_name, session, check, notified, reopened, server, standbys, reading }
    }

    pub fn limits(&self) -> Limits {
        self.url.limits()
    }

    /// Connects to the server that this process uses. All hosts are tried at once, so that one that hangs delays nothing.
    /// If none of them is that server, another may be chosen.
    pub async fn connect(&self) -> Result<Connection> {
        Ok(self.open(false).await?.0)
    }

    /// Also returns the task that drives the connection.
    async fn open(&self, is_supervised: bool) -> Result<(Connection, JoinHandle<()>)> {
        let limits = self.limits();
        let hangs =
            |_| Error::Unavailable(format!("cannot read the TLS settings (sslrootcert) within {:?}", limits.open()));
        let tls = MakeRustlsConnect::new(timeout(limits.open(), self.tls()).await.map_err(hangs)??);
        self.server.attempt();
        let mut answers: FuturesUnordered<_> =
            self.url.hosts.iter().map(|host| Box::pin(self.clone().try_host(host.clone(), tls.clone()))).collect();
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
        if host.get_application_name().is_none() {
            host.application_name(&self.application_name);
        }
        let (client, connection) = host.connect(tls).await?;
        let warnings = Arc::new(AtomicU64::new(0));
        let mut driver: Driver = Box::pin(drive(connection, Arc::clone(&warnings), Arc::clone(&self.notified)));
        let configure = format!("{DURABLE}; {}; {IDENTIFY}", self.check);
        let response = tokio::select! {
            response = client.simple_query(&configure) => response?,
            () = &mut driver => return Err(Error::Unavailable("PostgreSQL closed the connection".into())),
        };
        let mut rows = response.iter().rev().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let server = rows.next().and_then(Server::parse);
        let server = server.ok_or_else(|| Error::Failed("PostgreSQL does not identify itself".into(), None))?;
        if let Some(why) = rows.next().and_then(|row| row.get(0)) {
            return Err(Error::Unavailable(why.into()));
        }
        Ok(Box::new(Offer { server, client, warnings, driver }))
    }

    /// Logs servers that accept writes beside the one in use, and answer later.
    async fn refuse(self, mut answers: impl Stream<Item = Result<Box<Offer>>> + Unpin) {
        while let Some(answer) = answers.next().await {
            answer.iter().for_each(|offer| self.server.refuse(&offer.server));
        }
    }

    fn admit(&self, offer: Box<Offer>, is_supervised: bool) -> Result<(Connection, JoinHandle<()>), Box<Offer>> {
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
        let mut reading = self.reading.lock().await;
        let read = reading.get_or_insert_with(|| {
            let settings = self.url.tls.clone();
            spawn_blocking(move || settings.read())
        });
        let config = read.await;
        *reading = None;
        config.map_err(|error| Error::Failed(error.to_string(), None))?
    }

    /// Connects and prepares `statements`, all in one round trip.
    pub async fn prepare(&self, statements: &[&'static str]) -> Result<(Arc<PreparedConnection>, JoinHandle<()>)> {
        let (connection, driver) = self.open(true).await?;
        let client = &connection.client;
        let limits = self.limits();
        let prepared = within(limits.open(), async {
            client.batch_execute(&format!("{}; {}", self.session, limits.settings())).await?;
            let prepare = async |sql| Ok::<_, tokio_postgres::Error>((sql, client.prepare(sql).await?));
            try_join_all(statements.iter().copied().chain([self.check]).map(prepare)).await
        });
        let statements = prepared.await.inspect_err(|_| connection.discard())?.into_iter().collect();
        Ok((Arc::new(PreparedConnection { connection, statements }), driver))
    }

    /// Returns the reason why the server must not be used, or `None` if it may.
    pub async fn refusal(&self, prepared: &PreparedConnection, limit: Duration) -> Result<Option<String>> {
        let rows = match timeout(limit, prepared.query(self.check, &[])).await.map_err(|_| timed_out(limit))? {
            // The check has come between a batch that failed and its `ROLLBACK`.
            Err(error) if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) => return Ok(None),
            rows => rows?,
        };
        let Some(row) = rows.first() else { return Ok(None) };
        for (column, number) in (1..).zip(&*self.standbys) {
            number.store(row.try_get(column)?, Ordering::Relaxed);
        }
        Ok(row.try_get(0)?)
    }
}

async fn drive(
    mut connection: tokio_postgres::Connection<Socket, tls::Stream>,
    warnings: Arc<AtomicU64>,
    notified: Arc<Notify>,
) {
    while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            AsyncMessage::Notice(notice) if notice.parsed_severity() == Some(Severity::Warning) => {
                // Counted before the response that follows is delivered.
                let is_of_commit = matches!(notice.routine(), None | Some("SyncRepWaitForLSN"));
                warnings.fetch_add(is_of_commit.into(), Ordering::Release);
                let text = notice.message().replace(char::is_numeric, "");
                if std::mem::replace(&mut *LAST_WARNING.lock(), text.clone()) != text || is_of_commit {
                    tracing::warn!(warning = notice.message(), hint = notice.hint(), "PostgreSQL sent a warning");
                }
            }
            AsyncMessage::Notification(_) => notified.notify_one(),
            _ => {}
        }
    }
}

/// Retries `open` while the server is unavailable. Attempts begin for [`START_TIMEOUT`].
pub async fn retry<T>(open: impl AsyncFn() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match open().await {
            Err(Error::Unavailable(_)) if Instant::now() < deadline => sleep(Duration::from_millis(100)).await,
            outcome => return outcome,
        }
    }
}
