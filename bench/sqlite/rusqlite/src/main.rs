//! Libraries on rusqlite 0.40. The two without group commit have one connection that writes, because waiting for SQLite's lock
//! is slower and unfair.

use std::path::Path;

use deadpool_sqlite::{Config, Hook, HookError, Pool, PoolConfig, Runtime};
use sqlite_load::{GET, INSERT, Load, PRAGMAS, READERS, SCHEMA, Store};
use tinystore::{Options, aio, sql};
use tokio_rusqlite::Connection;

#[tokio::main]
async fn main() {
    let load = Load::from_arguments();
    match load.library.as_str() {
        "deadpool-sqlite" => load.run(Pools::open(&load.dir).await).await,
        "tokio-rusqlite" => load.run(Threads::open(&load.dir).await).await,
        "tinystore" => load.run(Tinystore::open(&load.dir)).await,
        other => panic!("unknown library: {other}"),
    }
}

struct Pools {
    writer: Pool,
    readers: Pool,
}

impl Pools {
    async fn open(dir: &Path) -> Self {
        let pool = |size| {
            let mut config = Config::new(dir.join("guests.db"));
            config.pool = Some(PoolConfig::new(size));
            let set_up = Hook::async_fn(|conn, _| {
                Box::pin(async move {
                    let set = conn.interact(|conn| conn.execute_batch(PRAGMAS)).await;
                    set.map_err(|error| HookError::message(error.to_string()))?.map_err(HookError::Backend)
                })
            });
            config.builder(Runtime::Tokio1).unwrap().post_create(set_up).build().unwrap()
        };
        let (writer, readers) = (pool(1), pool(READERS));
        let conn = writer.get().await.unwrap();
        conn.interact(|conn| conn.execute_batch(SCHEMA)).await.unwrap().unwrap();
        drop(conn);
        Self { writer, readers }
    }
}

impl Store for Pools {
    async fn insert(&self, name: String) -> i64 {
        let conn = self.writer.get().await.unwrap();
        let add = move |conn: &mut rusqlite::Connection| {
            conn.prepare_cached(INSERT)?.execute([name])?;
            Ok::<_, rusqlite::Error>(conn.last_insert_rowid())
        };
        conn.interact(add).await.unwrap().unwrap()
    }

    async fn get(&self, id: i64) -> String {
        let conn = self.readers.get().await.unwrap();
        conn.interact(move |conn| conn.prepare_cached(GET)?.query_row([id], |row| row.get(0))).await.unwrap().unwrap()
    }
}

struct Threads {
    writer: Connection,
    reader: Connection,
}

impl Threads {
    async fn open(dir: &Path) -> Self {
        let open = async || {
            let conn = Connection::open(dir.join("guests.db")).await.unwrap();
            conn.call(|conn| conn.execute_batch(PRAGMAS)).await.unwrap();
            conn
        };
        let writer = open().await;
        writer.call(|conn| conn.execute_batch(SCHEMA)).await.unwrap();
        Self { writer, reader: open().await }
    }
}

impl Store for Threads {
    async fn insert(&self, name: String) -> i64 {
        let add = move |conn: &mut rusqlite::Connection| {
            conn.prepare_cached(INSERT)?.execute([name])?;
            Ok::<_, rusqlite::Error>(conn.last_insert_rowid())
        };
        self.writer.call(add).await.unwrap()
    }

    async fn get(&self, id: i64) -> String {
        let get = move |conn: &mut rusqlite::Connection| conn.prepare_cached(GET)?.query_row([id], |row| row.get(0));
        self.reader.call(get).await.unwrap()
    }
}

/// Commits are durable by default. Dropping the store would close it.
struct Tinystore {
    db: aio::sql::Database,
    _store: aio::Store,
}

impl Tinystore {
    fn open(dir: &Path) -> Self {
        let store = aio::Store::open(dir, Options::default()).unwrap();
        let db = store.database("guests").migrations([("0001_guests.sql", SCHEMA)]).open().unwrap();
        Self { db, _store: store }
    }
}

impl Store for Tinystore {
    async fn insert(&self, name: String) -> i64 {
        self.db.exec(sql!(INSERT, name)).await.unwrap().last_insert_rowid
    }

    async fn get(&self, id: i64) -> String {
        self.db.scalar(sql!(GET, id)).await.unwrap()
    }
}
