//! The clients, each set up as its documentation advises. `hosts` are those of one cluster, separated by commas.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use postgres_group_commit::{self as pgc, Cluster, DatabaseUrl, Options, ReadBatcher, WriteQueue};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::RwLock;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{NoTls, Statement};

/// How long an operation may wait for a connection.
const WAIT: Duration = Duration::from_millis(1_800);

/// Connections of a pool.
const POOL: usize = 64;

const INSERT: &str = "INSERT INTO guests (name) VALUES ($1) RETURNING id";
const FIND: &str = "SELECT name FROM guests WHERE id = $1";

#[derive(Debug)]
#[expect(dead_code, reason = "`unwrap` shows why")]
pub enum Failure {
    NotApplied(String),
    /// It is unknown whether the write was applied.
    Unknown(String),
}

pub trait Client: Sized + Send + Sync + 'static {
    fn connect(hosts: &str) -> impl Future<Output = Self>;
    /// Returns the id of the new row.
    fn insert(&self, name: &str) -> impl Future<Output = Result<i64, Failure>> + Send;
    fn find(&self, id: i64) -> impl Future<Output = Result<String, Failure>> + Send;
}

fn url(hosts: &str) -> String {
    format!("postgres://petstore@{hosts}/petstore")
}

fn not_applied(error: impl ToString) -> Failure {
    Failure::NotApplied(error.to_string())
}

/// postgres-group-commit with its defaults.
pub struct GroupCommit {
    guests: WriteQueue<Guest>,
    finds: ReadBatcher<Find>,
    _cluster: Cluster,
}

const INSERT_ALL: &str = "INSERT INTO guests (name) SELECT * FROM unnest($1::text[]) RETURNING id";
const FIND_ALL: &str = "SELECT id, name FROM guests WHERE id = ANY ($1)";

struct Guest(String);

impl pgc::Write for Guest {
    type Output = i64;

    fn statements() -> Vec<&'static str> {
        vec![INSERT_ALL]
    }

    fn bytes(&self) -> usize {
        self.0.len()
    }

    async fn run(prepared: &pgc::PreparedConnection, guests: Vec<Self>) -> Result<Vec<i64>, tokio_postgres::Error> {
        let names: Vec<_> = guests.iter().map(|guest| &*guest.0).collect();
        prepared.query(INSERT_ALL, &[&names]).await?.iter().map(|row| row.try_get(0)).collect()
    }
}

struct Find(i64);

impl pgc::Read for Find {
    type Answer = String;

    async fn run(readers: &pgc::Readers, batch: Vec<pgc::Pending<Self>>) {
        let ids: Vec<_> = batch.iter().map(|pending| pending.read.0).collect();
        let found = readers.query(FIND_ALL, &[&ids]).await;
        for pgc::Pending { read, reply } in batch {
            let name = found.as_ref().map_err(Clone::clone).and_then(|rows| {
                let row = rows.iter().find(|row| row.get::<_, i64>(0) == read.0);
                row.map(|row| row.get(1)).ok_or_else(|| pgc::Error::Failed("no such row".into(), None))
            });
            let _ = reply.send(name);
        }
    }
}

fn failure(error: pgc::Error) -> Failure {
    match error {
        pgc::Error::Unknown(why) => Failure::Unknown(why),
        other => not_applied(other),
    }
}

impl Client for GroupCommit {
    async fn connect(hosts: &str) -> Self {
        let options = Options::new(DatabaseUrl::parse(&url(hosts)).unwrap());
        let (cluster, _) = Cluster::connect(&options).await.unwrap();
        let guests = cluster.write_queue("guests", Arc::new(())).await.unwrap();
        let readers = cluster.readers("reads", 2, &[FIND_ALL], Arc::new(())).await.unwrap();
        Self { guests, finds: ReadBatcher::new(&readers), _cluster: cluster }
    }

    async fn insert(&self, name: &str) -> Result<i64, Failure> {
        self.guests.submit(Guest(name.into())).await.map_err(failure)
    }

    async fn find(&self, id: i64) -> Result<String, Failure> {
        self.finds.read(Find(id)).await.map_err(failure)
    }
}

/// tokio-postgres, with a connection for all writes and another for all reads. Tasks pipeline their statements.
pub struct Pipelined {
    writes: Reconnecting,
    reads: Reconnecting,
}

/// A connection that is replaced when it is used after its end, and its statement.
struct Reconnecting {
    config: tokio_postgres::Config,
    sql: &'static str,
    current: RwLock<Option<Arc<Prepared>>>,
}

struct Prepared {
    client: tokio_postgres::Client,
    statement: Statement,
}

impl Reconnecting {
    fn new(config: &tokio_postgres::Config, sql: &'static str) -> Self {
        Self { config: config.clone(), sql, current: RwLock::default() }
    }

    async fn get(&self) -> Result<Arc<Prepared>, tokio_postgres::Error> {
        let open = |current: &Option<Arc<Prepared>>| current.clone().filter(|one| !one.client.is_closed());
        if let Some(prepared) = open(&*self.current.read().await) {
            return Ok(prepared);
        }
        let mut current = self.current.write().await;
        if let Some(prepared) = open(&current) {
            return Ok(prepared);
        }
        let (client, connection) = self.config.connect(NoTls).await?;
        tokio::spawn(connection);
        let statement = client.prepare(self.sql).await?;
        Ok(Arc::clone(current.insert(Arc::new(Prepared { client, statement }))))
    }
}

pub fn config(hosts: &str) -> tokio_postgres::Config {
    let mut config: tokio_postgres::Config = url(hosts).parse().unwrap();
    config.target_session_attrs(TargetSessionAttrs::ReadWrite).connect_timeout(WAIT);
    config
}

/// An error of the server means that it has rolled back. Otherwise the connection was lost.
fn of_statement(error: tokio_postgres::Error) -> Failure {
    match error.as_db_error() {
        Some(error) if !error.code().code().starts_with("57P") => not_applied(error),
        _ => Failure::Unknown(error.to_string()),
    }
}

impl Client for Pipelined {
    async fn connect(hosts: &str) -> Self {
        let config = config(hosts);
        Self { writes: Reconnecting::new(&config, INSERT), reads: Reconnecting::new(&config, FIND) }
    }

    async fn insert(&self, name: &str) -> Result<i64, Failure> {
        let prepared = self.writes.get().await.map_err(not_applied)?;
        Ok(prepared.client.query_one(&prepared.statement, &[&name]).await.map_err(of_statement)?.get(0))
    }

    async fn find(&self, id: i64) -> Result<String, Failure> {
        let prepared = self.reads.get().await.map_err(not_applied)?;
        Ok(prepared.client.query_one(&prepared.statement, &[&id]).await.map_err(of_statement)?.get(0))
    }
}

/// deadpool-postgres, with statements prepared once per connection.
pub struct Deadpool(Pool);

impl Client for Deadpool {
    async fn connect(hosts: &str) -> Self {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = deadpool_postgres::Manager::from_config(config(hosts), NoTls, recycling);
        let pool = Pool::builder(manager).max_size(POOL).runtime(Runtime::Tokio1);
        let pool = pool.wait_timeout(Some(WAIT)).create_timeout(Some(WAIT)).recycle_timeout(Some(WAIT));
        Self(pool.build().unwrap())
    }

    async fn insert(&self, name: &str) -> Result<i64, Failure> {
        let client = self.0.get().await.map_err(|error: PoolError| not_applied(error))?;
        let statement = client.prepare_cached(INSERT).await.map_err(not_applied)?;
        Ok(client.query_one(&statement, &[&name]).await.map_err(of_statement)?.get(0))
    }

    async fn find(&self, id: i64) -> Result<String, Failure> {
        let client = self.0.get().await.map_err(not_applied)?;
        let statement = client.prepare_cached(FIND).await.map_err(not_applied)?;
        Ok(client.query_one(&statement, &[&id]).await.map_err(of_statement)?.get(0))
    }
}

/// sqlx, which prepares each statement once per connection. It knows one host at a time, so a task follows the primary.
pub struct Sqlx(PgPool);

/// Interval at which the hosts are asked which one is the primary, as a proxy does.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

async fn is_primary(host: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let mut connection = host.connect().await?;
    let is_standby: bool = sqlx::query_scalar("SELECT pg_is_in_recovery()").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(!is_standby)
}

async fn follow_primary(pool: PgPool, hosts: Vec<PgConnectOptions>) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        for host in &hosts {
            if let Ok(Ok(true)) = tokio::time::timeout(CHECK_INTERVAL, is_primary(host)).await {
                pool.set_connect_options(host.clone());
            }
        }
    }
}

impl Client for Sqlx {
    async fn connect(hosts: &str) -> Self {
        let hosts: Vec<PgConnectOptions> = hosts.split(',').map(|host| url(host).parse().unwrap()).collect();
        // Without the test, a use takes one round trip instead of two.
        let pool = PgPoolOptions::new().max_connections(POOL as u32).acquire_timeout(WAIT).test_before_acquire(false);
        let pool = pool.connect_with(hosts[0].clone()).await.unwrap();
        if hosts.len() > 1 {
            tokio::spawn(follow_primary(pool.clone(), hosts));
        }
        Self(pool)
    }

    async fn insert(&self, name: &str) -> Result<i64, Failure> {
        let mut connection = self.0.acquire().await.map_err(not_applied)?;
        sqlx::query_scalar(INSERT).bind(name).fetch_one(&mut *connection).await.map_err(|error| {
            match error.as_database_error().map(|error| error.code().unwrap_or_default()) {
                Some(code) if !code.starts_with("57P") => not_applied(error),
                _ => Failure::Unknown(error.to_string()),
            }
        })
    }

    async fn find(&self, id: i64) -> Result<String, Failure> {
        sqlx::query_scalar(FIND).bind(id).fetch_one(&self.0).await.map_err(not_applied)
    }
}
