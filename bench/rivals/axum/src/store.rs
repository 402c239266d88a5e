//! The database: connection pools, statements and API keys.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::{
    ConnectOptions, Connection, FromRow, Row, SqlitePool, query, query_as, query_scalar, raw_sql,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous},
};

use crate::{Failure, api::NewPet};

/// Default number of connections that read.
pub const READERS: u32 = 1;
/// Time for which a revoked key may still be accepted.
const KEY_TTL: Duration = Duration::from_secs(1);

const LIST: &str = "SELECT id, name, category_id, status FROM pets WHERE id > ? ORDER BY id LIMIT ?";
const LIST_BY_STATUS: &str =
    "SELECT id, name, category_id, status FROM pets WHERE status = ? AND id > ? ORDER BY id LIMIT ?";
const GET: &str = "SELECT id, name, category_id, status FROM pets WHERE id = ?";
const CREATE: &str = "INSERT INTO pets (name, category_id, status) VALUES (?, ?, ?)";
const SEND: &str = "INSERT INTO messages (id, account_id, message, created_at) VALUES (?, ?, ?, ?)";
const ACCOUNT: &str = "SELECT account_id FROM api_keys WHERE hash = ?";

// From a `String`, because serde_json reports `null` instead of a variant as a syntax error.
#[derive(Clone, Copy, Default, Deserialize, Serialize, sqlx::Type)]
#[serde(rename_all = "lowercase", try_from = "String")]
#[sqlx(rename_all = "lowercase")]
pub enum Status {
    #[default]
    Available,
    Pending,
    Sold,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Pending => "pending",
            Self::Sold => "sold",
        }
    }
}

impl TryFrom<String> for Status {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        let all = [Self::Available, Self::Pending, Self::Sold];
        all.into_iter().find(|status| status.name() == name).ok_or("a status is `available`, `pending` or `sold`")
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pet {
    pub id: i64,
    pub name: String,
    pub category_id: i64,
    pub status: Status,
}

/// Reads columns by number, which saves the search by name of a derived implementation.
impl FromRow<'_, SqliteRow> for Pet {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self { id: row.try_get(0)?, name: row.try_get(1)?, category_id: row.try_get(2)?, status: row.try_get(3)? })
    }
}

#[derive(Clone)]
pub struct Store {
    readers: SqlitePool,
    /// A single connection, because SQLite has one writer: waiting for it here is fairer than polling SQLite's lock.
    writer: SqlitePool,
    /// Cached keys by their hash.
    keys: Arc<Mutex<HashMap<[u8; 32], CachedKey>>>,
}

#[derive(Clone, Copy)]
struct CachedKey {
    account: i64,
    until: Instant,
}

impl Store {
    pub async fn open(path: &str, readers: u32) -> sqlx::Result<Self> {
        let options = options(path);
        Ok(Self {
            writer: pool(1, options.clone()).await?,
            readers: pool(readers, options.read_only(true)).await?,
            keys: Arc::default(),
        })
    }

    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Returns the account of an API key, or `None` if the key is unknown.
    pub async fn account(&self, key: &str) -> sqlx::Result<Option<i64>> {
        let hash: [u8; 32] = Sha256::digest(key).into();
        let cached = self.keys.lock().expect("no thread panics with this lock").get(&hash).copied();
        if let Some(key) = cached
            && Instant::now() < key.until
        {
            return Ok(Some(key.account));
        }
        let account = query_scalar(ACCOUNT).bind(&hash[..]).fetch_optional(&self.readers).await?;
        let mut keys = self.keys.lock().expect("no thread panics with this lock");
        match account {
            Some(account) => keys.insert(hash, CachedKey { account, until: Instant::now() + KEY_TTL }),
            None => keys.remove(&hash),
        };
        Ok(account)
    }

    /// Returns at most `count` animals with ids above `after`, in the order of their ids.
    pub async fn list(&self, status: Option<Status>, after: i64, count: u8) -> sqlx::Result<Vec<Pet>> {
        match status {
            Some(status) => {
                query_as(LIST_BY_STATUS).bind(status).bind(after).bind(count).fetch_all(&self.readers).await
            }
            None => query_as(LIST).bind(after).bind(count).fetch_all(&self.readers).await,
        }
    }

    pub async fn get(&self, id: i64) -> sqlx::Result<Option<Pet>> {
        query_as(GET).bind(id).fetch_optional(&self.readers).await
    }

    pub async fn create(&self, new: NewPet) -> sqlx::Result<Pet> {
        let (name, category_id, status) = (new.name.into(), new.category_id, new.status);
        // Without an explicit transaction, the statement commits: it is on disk when this returns.
        let done = query(CREATE).bind(&name).bind(category_id).bind(status).execute(&self.writer).await?;
        Ok(Pet { id: done.last_insert_rowid(), name, category_id, status })
    }

    pub async fn send(&self, id: &str, account: i64, message: &str, created_at: i64) -> sqlx::Result<()> {
        query(SEND).bind(id).bind(account).bind(message).bind(created_at).execute(&self.writer).await?;
        Ok(())
    }
}

fn options(path: &str) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        // A page of 100 and the row that shows whether there is another: fetched without waiting for the reader.
        .row_buffer_size(101)
        .disable_statement_logging()
}

async fn pool(size: u32, options: SqliteConnectOptions) -> sqlx::Result<SqlitePool> {
    SqlitePoolOptions::new()
        .min_connections(size)
        .max_connections(size)
        // A local file does not disconnect. The default asks the connection's thread before every statement.
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_with(options)
        .await
}

/// Creates a database with these animals and a key.
pub async fn fill(path: &str, key: &str, pets: impl Iterator<Item = Result<NewPet, Failure>>) -> Result<(), Failure> {
    let mut connection = options(path).create_if_missing(true).connect().await?;
    let mut transaction = connection.begin().await?;
    raw_sql(include_str!("../../schema.sql")).execute(&mut *transaction).await?;
    query("INSERT INTO accounts (id) VALUES (1)").execute(&mut *transaction).await?;
    let hash = Sha256::digest(key);
    query("INSERT INTO api_keys (hash, account_id) VALUES (?, 1)").bind(&hash[..]).execute(&mut *transaction).await?;
    for pet in pets {
        let NewPet { name, category_id, status } = pet?;
        let name = String::from(name);
        query(CREATE).bind(name).bind(category_id).bind(status).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    // Closing the last connection checkpoints the WAL.
    Ok(connection.close().await?)
}
