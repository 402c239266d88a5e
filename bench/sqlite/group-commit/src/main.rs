//! sqlite-group-commit, and rusqlite behind a mutex.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use sqlite_group_commit::{Atomicity, Database, Effect, Error, Folder, Options, Steps};
use sqlite_load::{GET, INSERT, Load, PRAGMAS, SCHEMA, Store};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

#[tokio::main]
async fn main() {
    let load = Load::from_arguments();
    match load.library.as_str() {
        "sqlite-group-commit" => load.run(GroupCommit::open(&load.dir)).await,
        "rusqlite" => load.run(Mutexes::open(&load.dir)).await,
        other => panic!("unknown library: {other}"),
    }
}

struct GroupCommit(Database);

impl GroupCommit {
    fn open(dir: &Path) -> Self {
        const STEPS: Steps = Steps(&[SCHEMA]);
        Self(Database::open(&Folder::new(dir, "guests"), &Options::default(), &STEPS).unwrap())
    }
}

impl Store for GroupCommit {
    async fn insert(&self, name: String) -> i64 {
        let add = self.0.submit(Atomicity::Statement, Effect::Any, move |conn| {
            conn.execute(INSERT, [name])?;
            Ok(conn.last_insert_rowid())
        });
        add.await.unwrap()
    }

    async fn get(&self, id: i64) -> String {
        let get = |conn: &Connection| Ok::<_, Error>(conn.prepare_cached(GET)?.query_row([id], |row| row.get(0))?);
        self.0.read(get).unwrap()
    }
}

/// A connection that writes, and one that reads. Tasks wait for them outside of the threads for blocking work.
struct Mutexes {
    writer: Arc<Mutex<Connection>>,
    reader: Arc<Mutex<Connection>>,
}

impl Mutexes {
    fn open(dir: &Path) -> Self {
        let open = || {
            let conn = Connection::open(dir.join("guests.db")).unwrap();
            conn.execute_batch(PRAGMAS).unwrap();
            conn
        };
        let writer = open();
        writer.execute_batch(SCHEMA).unwrap();
        Self { writer: Arc::new(Mutex::new(writer)), reader: Arc::new(Mutex::new(open())) }
    }
}

impl Store for Mutexes {
    async fn insert(&self, name: String) -> i64 {
        let conn = Arc::clone(&self.writer).lock_owned().await;
        let add = move || {
            conn.prepare_cached(INSERT)?.execute([name])?;
            Ok::<_, rusqlite::Error>(conn.last_insert_rowid())
        };
        spawn_blocking(add).await.unwrap().unwrap()
    }

    async fn get(&self, id: i64) -> String {
        let conn = Arc::clone(&self.reader).lock_owned().await;
        let get = move || conn.prepare_cached(GET)?.query_row([id], |row| row.get(0));
        spawn_blocking(get).await.unwrap().unwrap()
    }
}
