//! Tests on real files.

mod concurrency;
mod faults;
#[path = "../../examples/sqlite_guest_book.rs"]
#[expect(dead_code, reason = "its `main` is for people")]
mod guest_book;
mod writes;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, Statement};
use sqlite_group_commit::{Database, Effect, Folder, Insert, NewRow, Options, Result, Steps};
use tokio::time::{sleep, timeout};

/// Time after which a test that waits fails.
const TIMEOUT: Duration = Duration::from_mins(1);

const STEPS: &[&str] = &["CREATE TABLE numbers (id INTEGER PRIMARY KEY, number INTEGER NOT NULL UNIQUE)"];

const SCHEMA: Steps = Steps(STEPS);

const ADD: &str = "INSERT INTO numbers (number) VALUES (?)";

/// A row of `numbers`, whose result is its id.
struct Number(i64);

impl NewRow for Number {
    const INSERT: Insert =
        Insert { one: ADD, several: "INSERT INTO numbers (number) VALUES (?), (?), (?), (?), (?), (?), (?), (?)" };
    const EFFECT: Effect = Effect::Adds;
    type Added = i64;

    fn bind(&self, statement: &mut Statement<'_>, first: usize) -> rusqlite::Result<()> {
        statement.raw_bind_parameter(first, self.0)
    }

    fn added(self, rowid: i64) -> i64 {
        rowid
    }
}

fn open(dir: &Path) -> Database {
    open_with(dir, &Options::default())
}

/// Opens a database whose timeout of writes load does not reach.
fn open_with(dir: &Path, options: &Options) -> Database {
    Database::open(&Folder::new(dir, "test"), &Options { write_timeout: TIMEOUT, ..options.clone() }, &SCHEMA).unwrap()
}

fn numbers(db: &Database) -> BTreeSet<i64> {
    let select = |conn: &Connection| -> Result<_> {
        Ok(conn.prepare("SELECT number FROM numbers")?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
    };
    db.read(select).unwrap()
}

async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let poll = async {
        while !is_so().await {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(TIMEOUT, poll).await.unwrap();
}
