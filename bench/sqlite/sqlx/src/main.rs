//! sqlx, with one connection that writes, because waiting for SQLite's lock is slower and unfair.

use std::path::Path;

use sqlite_load::{GET, INSERT, Load, READERS, SCHEMA, Store};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{SqlitePool, query, query_scalar, raw_sql};

#[tokio::main]
async fn main() {
    let load = Load::from_arguments();
    assert_eq!(load.library, "sqlx");
    load.run(Pools::open(&load.dir).await).await;
}

struct Pools {
    writer: SqlitePool,
    readers: SqlitePool,
}

impl Pools {
    async fn open(dir: &Path) -> Self {
        let file = SqliteConnectOptions::new().filename(dir.join("guests.db")).create_if_missing(true);
        let file = file.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
        let pool = |size| SqlitePoolOptions::new().max_connections(size).connect_with(file.clone());
        let writer = pool(1).await.unwrap();
        raw_sql(SCHEMA).execute(&writer).await.unwrap();
        Self { writer, readers: pool(READERS as u32).await.unwrap() }
    }
}

impl Store for Pools {
    async fn insert(&self, name: String) -> i64 {
        query(INSERT).bind(name).execute(&self.writer).await.unwrap().last_insert_rowid()
    }

    async fn get(&self, id: i64) -> String {
        query_scalar(GET).bind(id).fetch_one(&self.readers).await.unwrap()
    }
}
