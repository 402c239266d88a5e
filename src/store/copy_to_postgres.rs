//! Copies all rows of the embedded database, with their ids, into an empty PostgreSQL database.
//!
//! The embedded database accepts no writes during the copy. Rows are sent in the text format of PostgreSQL's `COPY`. One
//! transaction inserts them, reads them back in the same format and order, and compares the SHA-256 of both before it
//! commits.

use std::io::Write;
use std::pin::pin;

use bytes::Bytes;
use futures_util::{SinkExt, TryStreamExt};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_postgres::Transaction;
use uuid::Uuid;

use super::postgres::{self, DatabaseUrl, LONG, Postgres, of_commit, within};
use super::sqlite::{Atomicity, Sqlite};
use super::transaction::Transaction as _;
use super::{Result, StoreError, keys};
use crate::domain::{Action, Actor};

/// Number of rows sent at once.
const CHUNK: u64 = 1_000;

struct Table {
    name: &'static str,
    /// The primary key, which gives the order of the rows.
    key: &'static str,
}

/// Every table except `meta`. A table follows those that it references.
const TABLES: [Table; 8] = [
    Table { name: "accounts", key: "id" },
    Table { name: "api_keys", key: "id" },
    Table { name: "pets", key: "id" },
    Table { name: "orders", key: "id" },
    Table { name: "messages", key: "account_id, id" },
    Table { name: "sessions", key: "token_hash" },
    Table { name: "idempotency_records", key: "key_hash" },
    Table { name: "audit", key: "id" },
];

/// The number of the next rows of a table, and their text. The last part has fewer than [`CHUNK`], perhaps none.
type Rows = (u64, Vec<u8>);

/// The number of rows copied from each table.
type Copied = Vec<(&'static str, u64)>;

/// Copies everything or nothing, and records the copy in the new database. Calls `progress` with the number of rows done
/// and their total. Each row counts twice, because it is read back.
pub async fn copy(
    from: &Sqlite,
    to: &DatabaseUrl,
    actor: &Actor,
    progress: impl Fn(u64, u64) + Sync,
) -> Result<Copied> {
    let subject = super::audit::of_path(from.folder().dir());
    let deployment = from.deployment;
    let options = postgres::Options { deployment: Some(deployment), ..postgres::Options::of_command(to.clone()) };
    let target = Postgres::open(&options).await?;
    let (parts, received) = mpsc::channel(4);
    let writing = receive(from, &target, received, (actor, &subject), &progress);
    // Stops when the receiver is gone.
    let reading = from.submit_long(Atomicity::Savepoint, move |conn| send(conn, &parts));
    let copied = tokio::try_join!(writing, reading);
    target.close().await;
    Ok(copied?.0)
}

/// Runs on the writer thread, so that no write happens during the copy.
fn send(conn: &Connection, parts: &mpsc::Sender<Rows>) -> Result<()> {
    let send = |part| parts.blocking_send(part).map_err(|_| StoreError::Unavailable("the copy was aborted".into()));
    for table in &TABLES {
        let mut statement = conn.prepare(&table.select(&table.columns(conn)?))?;
        let is_uuid: Vec<_> = statement.column_names().map(|column| (table.name, column) == UUID).collect();
        let mut rows = statement.query([])?;
        let (mut count, mut text) = (0, Vec::new());
        while let Some(row) = rows.next()? {
            for (position, is_uuid) in is_uuid.iter().enumerate() {
                text.extend_from_slice(if position == 0 { b"" } else { b"\t" });
                append(&mut text, row.get_ref(position)?, *is_uuid)?;
            }
            text.push(b'\n');
            count += 1;
            if count == CHUNK {
                send((count, std::mem::take(&mut text)))?;
                count = 0;
            }
        }
        send((count, text))?;
    }
    Ok(())
}

/// The table and column that is a blob of 16 bytes in SQLite and a `uuid` in PostgreSQL.
const UUID: (&str, &str) = ("messages", "id");

/// Appends a value as PostgreSQL writes it (postgresql.org/docs/current/sql-copy.html, "Text Format"). No stored text has
/// other control characters than these.
fn append(text: &mut Vec<u8>, value: ValueRef<'_>, is_uuid: bool) -> Result<()> {
    let written = match value {
        ValueRef::Null => write!(text, "\\N"),
        ValueRef::Integer(number) => write!(text, "{number}"),
        ValueRef::Real(number) => write!(text, "{number}"),
        ValueRef::Text(characters) => {
            characters.iter().for_each(|byte| match byte {
                b'\\' => text.extend(b"\\\\"),
                b'\n' => text.extend(b"\\n"),
                b'\r' => text.extend(b"\\r"),
                b'\t' => text.extend(b"\\t"),
                other => text.push(*other),
            });
            Ok(())
        }
        ValueRef::Blob(bytes) if is_uuid => {
            let id = Uuid::from_slice(bytes).map_err(|error| StoreError::Failed(format!("a message's id: {error}")))?;
            write!(text, "{id}")
        }
        ValueRef::Blob(bytes) => {
            text.extend(b"\\\\x");
            bytes.iter().try_for_each(|byte| write!(text, "{byte:02x}"))
        }
    };
    written.expect("memory accepts every write");
    Ok(())
}

/// Writes what `send` reads. Never returns if `send` fails, whose error ends the copy.
async fn receive(
    from: &Sqlite,
    target: &Postgres,
    mut parts: mpsc::Receiver<Rows>,
    (actor, subject): (&Actor, &str),
    progress: &(impl Fn(u64, u64) + Sync),
) -> Result<Copied> {
    let mut connection = target.cluster.connection().await?;
    let warnings = connection.warnings();
    let transaction = within(LONG, connection.client.transaction()).await?;
    let names = TABLES.map(|table| table.name).join(", ");
    let lock =
        format!("SET LOCAL lock_timeout = '10s'; LOCK TABLE {names} IN EXCLUSIVE MODE; SET LOCAL bytea_output = hex");
    within(LONG, transaction.batch_execute(&lock)).await?;
    refuse_unless_empty(&transaction).await?;
    let keep_id = "UPDATE meta SET value = $1 WHERE key = 'store_id'";
    within(LONG, transaction.execute(keep_id, &[&from.id])).await?;
    let rows = from.read_long(|conn| TABLES.iter().map(|table| table.count(conn)).sum::<Result<u64>>()).await?;
    let mut done = 0;
    let mut report = |more: u64| {
        done += more;
        progress(done, 2 * rows);
    };
    let mut copied = Vec::new();
    for table in &TABLES {
        let columns = from.read(|conn| table.columns(conn))?;
        copied.push((table.name, receive_table(table, &columns, &transaction, &mut parts, &mut report).await?));
    }
    // Ids of erased keys are not given out again.
    let last = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'api_keys'";
    let last: i64 = from.read(|conn| -> Result<_> { Ok(conn.query_row(last, [], |row| row.get(0))?) })?;
    let restart = "SELECT setval(pg_get_serial_sequence('api_keys', 'id'), $1) WHERE $1 > 0::bigint";
    within(LONG, transaction.execute(restart, &[&last])).await?;
    keys::note_change(transaction.client()).await?;
    transaction.client().record(actor, Action::MoveStore, subject).await?;
    transaction.commit().await.map_err(|error| of_commit(error, "the store may have been moved, look at it"))?;
    connection.not_warned_since(warnings)?;
    Ok(copied)
}

/// Writes the rows of a table and compares them. Returns their number.
async fn receive_table(
    table: &Table,
    columns: &str,
    transaction: &Transaction<'_>,
    parts: &mut mpsc::Receiver<Rows>,
    report: &mut impl FnMut(u64),
) -> Result<u64> {
    let (mut sent, mut kept) = (Sha256::new(), Sha256::new());
    let insert = format!("COPY {} ({columns}) FROM STDIN", table.name);
    let mut sink = pin!(transaction.copy_in(&insert).await?);
    loop {
        let Some((count, text)) = parts.recv().await else { return std::future::pending().await };
        sent.update(&text);
        sink.send(Bytes::from(text)).await?;
        report(count);
        if count < CHUNK {
            break;
        }
    }
    let inserted = sink.finish().await?;
    let mut rows = pin!(transaction.copy_out(&format!("COPY ({}) TO STDOUT", table.select(columns))).await?);
    while let Some(row) = rows.try_next().await? {
        kept.update(&row);
        report(1);
    }
    if sent.finalize() != kept.finalize() {
        return Err(StoreError::Failed(format!("{}: the rows read back differ from those sent", table.name)));
    }
    if table.key == "id" {
        let table = table.name;
        // The next id is greater than all that were copied.
        let restart =
            format!("SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table} HAVING count(*) > 0");
        transaction.batch_execute(&restart).await?;
    }
    Ok(inserted)
}

async fn refuse_unless_empty(transaction: &Transaction<'_>) -> Result<()> {
    for table in &TABLES {
        let any = format!("SELECT EXISTS (SELECT FROM {})", table.name);
        if within(LONG, transaction.query_one(&any, &[])).await?.try_get(0)? {
            return Err(StoreError::Refused(format!(
                "the database is not empty: it has {}; nothing was copied",
                table.name.replace('_', " ")
            )));
        }
    }
    Ok(())
}

impl Table {
    fn count(&self, conn: &Connection) -> Result<u64> {
        let count = format!("SELECT count(*) FROM {}", self.name);
        Ok(conn.query_row(&count, [], |row| row.get::<_, i64>(0))?.unsigned_abs())
    }

    /// Returns the names of the columns, separated by commas.
    fn columns(&self, conn: &Connection) -> Result<String> {
        let columns = "SELECT group_concat(name, ', ') FROM pragma_table_info(?1)";
        Ok(conn.query_row(columns, [self.name], |row| row.get(0))?)
    }

    fn select(&self, columns: &str) -> String {
        format!("SELECT {columns} FROM {} ORDER BY {}", self.name, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::rows;

    #[tokio::test]
    async fn every_table_is_copied() {
        let folder = tempfile::tempdir().unwrap();
        let database = Sqlite::open(&crate::store::sqlite::Options::new(folder.path())).unwrap();
        let there = "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main'
                     AND name NOT IN ('meta', 'schema_history', 'sqlite_schema', 'sqlite_sequence') ORDER BY name";
        let there: Vec<(String,)> = database.read(|conn| rows::all(conn, there, [])).unwrap();
        let mut copied = TABLES.map(|table| (table.name.to_owned(),));
        copied.sort_unstable();
        assert_eq!(copied[..], there[..], "TABLES lists every table of the schema");
        database.close().await;
    }

    #[test]
    fn values_are_written_in_the_format_of_copy() {
        let written = |value, is_uuid| {
            let mut text = Vec::new();
            append(&mut text, value, is_uuid).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(written(ValueRef::Null, false), r"\N");
        assert_eq!(written(ValueRef::Integer(i64::MIN), false), "-9223372036854775808");
        assert_eq!(written(ValueRef::Text("a\tb\r\n\\N ß🦊".as_bytes()), false), r"a\tb\r\n\\N ß🦊");
        assert_eq!(written(ValueRef::Text(b""), false), "");
        assert_eq!(written(ValueRef::Blob(&[0, 10, 255]), false), r"\\x000aff");
        assert_eq!(written(ValueRef::Blob(&[171; 16]), true), "abababab-abab-abab-abab-abababababab");
    }
}
