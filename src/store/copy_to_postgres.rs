//! Copies all rows of the embedded database, with their ids, into an empty PostgreSQL database.
//!
//! The embedded database accepts no writes during the copy. One transaction inserts the rows, reads them back and compares
//! their number and SHA-256 before it commits.

use rusqlite::types::Value;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Transaction};

use super::postgres::{self, DatabaseUrl, Postgres};
use super::sqlite::{Atomicity, Sqlite};
use super::{Result, StoreError};

/// Number of rows in one statement.
const CHUNK: usize = 1_000;

/// A table, its columns and their types.
struct Table {
    name: &'static str,
    columns: &'static [(&'static str, Type)],
    /// Number of columns in the primary key, which come first and give the order of the rows.
    key: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Integer,
    Text,
    Bytes,
    /// A blob of 16 bytes in SQLite, a `uuid` in PostgreSQL.
    Uuid,
}

use Type::{Bytes, Integer, Text, Uuid};

/// Every table except `meta`. A table follows those that it references.
const TABLES: [Table; 7] = [
    Table {
        name: "accounts",
        columns: &[
            ("id", Integer),
            ("email", Text),
            ("email_folded", Text),
            ("password_hash", Text),
            ("created_at", Integer),
            ("deleted_at", Integer),
        ],
        key: 1,
    },
    Table {
        name: "api_keys",
        columns: &[
            ("id", Integer),
            ("account_id", Integer),
            ("name", Text),
            ("hash", Bytes),
            ("hint", Text),
            ("created_at", Integer),
            ("last_used_at", Integer),
            ("lifetime", Integer),
            ("expires_at", Integer),
            ("revoked_at", Integer),
        ],
        key: 1,
    },
    Table {
        name: "pets",
        columns: &[("id", Integer), ("name", Text), ("category_id", Integer), ("status", Integer)],
        key: 1,
    },
    Table {
        name: "orders",
        columns: &[
            ("id", Integer),
            ("account_id", Integer),
            ("pet_id", Integer),
            ("status", Integer),
            ("created_at", Integer),
            ("updated_at", Integer),
        ],
        key: 1,
    },
    Table {
        name: "messages",
        columns: &[
            ("account_id", Integer),
            ("id", Uuid),
            ("message", Text),
            ("created_at", Integer),
            ("sent_at", Integer),
        ],
        key: 2,
    },
    Table {
        name: "sessions",
        columns: &[("token_hash", Bytes), ("account_id", Integer), ("created_at", Integer), ("last_used_at", Integer)],
        key: 1,
    },
    Table {
        name: "idempotency_records",
        columns: &[
            ("key_hash", Bytes),
            ("account_id", Integer),
            ("fingerprint", Bytes),
            ("expires_at", Integer),
            ("status", Integer),
            ("location", Text),
            ("body", Bytes),
        ],
        key: 1,
    },
];

/// A part of the embedded database, as the writer thread sends it.
enum Part {
    /// The number of all rows, and the version of the keys.
    Start {
        rows: u64,
        keys_version: i64,
    },
    Rows(Vec<Vec<Value>>),
    /// All rows of a table were sent.
    End,
}

/// The number of rows copied from each table.
#[derive(Debug, PartialEq, Eq)]
pub struct Copied(pub Vec<(&'static str, u64)>);

/// Copies everything or nothing. Calls `progress` with the number of rows done and their total. Each row counts twice,
/// because it is read back.
pub async fn copy(from: &Sqlite, to: &DatabaseUrl, progress: impl Fn(u64, u64) + Sync) -> Result<Copied> {
    let deployment = from.deployment();
    let options = postgres::Options { deployment: Some(deployment), ..postgres::Options::new(to.clone()) };
    let target = Postgres::open(&options).await?;
    let (parts, mut received) = mpsc::channel(4);
    let reading = from.submit(Atomicity::Savepoint, move |conn| send(conn, &parts));
    let (read, written) = tokio::join!(reading, async {
        let written = receive(&target, &mut received, &progress).await;
        // The sender stops when the receiver is gone.
        drop(received);
        written
    });
    target.close().await;
    // If both failed, the error of `read` is a consequence.
    let written = written?;
    read?;
    Ok(written)
}

/// Runs on the writer thread, so that no write happens during the copy.
fn send(conn: &rusqlite::Connection, parts: &mpsc::Sender<Part>) -> Result<()> {
    let send = |part| parts.blocking_send(part).map_err(|_| StoreError::Unavailable("the copy was aborted".into()));
    let count = |table: &Table| -> Result<u64> {
        let count = format!("SELECT count(*) FROM {}", table.name);
        Ok(conn.query_row(&count, [], |row| row.get::<_, i64>(0))?.unsigned_abs())
    };
    let rows = TABLES.iter().map(count).sum::<Result<u64>>()?;
    send(Part::Start { rows, keys_version: super::sqlite::keys::version(conn)? })?;
    for table in &TABLES {
        let mut statement = conn.prepare(&table.select(|name, _| name.to_owned()))?;
        let mut rows = statement.query([])?;
        let mut chunk = Vec::with_capacity(CHUNK);
        while let Some(row) = rows.next()? {
            chunk.push((0..table.columns.len()).map(|column| row.get(column)).collect::<rusqlite::Result<_>>()?);
            if chunk.len() == CHUNK {
                send(Part::Rows(std::mem::take(&mut chunk)))?;
            }
        }
        send(Part::Rows(chunk))?;
        send(Part::End)?;
    }
    Ok(())
}

async fn receive(
    target: &Postgres,
    parts: &mut mpsc::Receiver<Part>,
    progress: &(impl Fn(u64, u64) + Sync),
) -> Result<Copied> {
    let mut connection = target.connect().await?;
    let warnings = connection.warnings();
    let transaction = connection.client.transaction().await?;
    let names = TABLES.map(|table| table.name).join(", ");
    transaction.batch_execute(&format!("LOCK TABLE {names} IN EXCLUSIVE MODE")).await?;
    refuse_unless_empty(&transaction).await?;
    let Some(Part::Start { rows, keys_version }) = parts.recv().await else { return Err(stopped()) };
    let bump = "UPDATE meta SET value = ($1::bigint + value::bigint)::text WHERE key = 'keys_version'";
    transaction.execute(bump, &[&keys_version]).await?;
    let mut done = 0;
    let mut report = |more: usize| {
        done += more as u64;
        progress(done, 2 * rows);
    };
    let mut copied = Vec::new();
    for table in &TABLES {
        let mut sent = Summary::default();
        let insert = transaction.prepare(&table.insert()).await?;
        while let Some(Part::Rows(chunk)) = parts.recv().await {
            chunk.iter().for_each(|row| sent.add(row));
            let columns = table.transpose(&chunk)?;
            let parameters: Vec<_> = columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect();
            transaction.execute(&insert, &parameters).await?;
            report(chunk.len());
        }
        let kept = table.read_back(&transaction, &mut report).await?;
        if sent != kept {
            return Err(StoreError::Failed(format!("{}: the rows read back differ from those sent", table.name)));
        }
        if let Some(restart) = table.restart_sequence() {
            transaction.batch_execute(&restart).await?;
        }
        copied.push((table.name, kept.rows));
    }
    transaction.commit().await?;
    connection.not_warned_since(warnings)?;
    Ok(Copied(copied))
}

async fn refuse_unless_empty(transaction: &Transaction<'_>) -> Result<()> {
    for table in &TABLES {
        let any = format!("SELECT EXISTS (SELECT FROM {})", table.name);
        if transaction.query_one(&any, &[]).await?.try_get(0)? {
            return Err(StoreError::Refused(format!(
                "the database is not empty: it has {}; nothing was copied",
                table.name.replace('_', " ")
            )));
        }
    }
    Ok(())
}

/// The number of rows and a hash over all of them.
#[derive(Default)]
struct Summary {
    rows: u64,
    hash: Sha256,
}

impl PartialEq for Summary {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows && self.hash.clone().finalize() == other.hash.clone().finalize()
    }
}

impl Summary {
    fn add(&mut self, row: &[Value]) {
        self.rows += 1;
        for value in row {
            // The type and the length separate adjacent values.
            let (kind, bytes): (u8, &[u8]) = match value {
                Value::Null => (b'n', &[]),
                Value::Integer(number) => (b'i', &number.to_be_bytes()),
                Value::Real(number) => (b'r', &number.to_be_bytes()),
                Value::Text(text) => (b't', text.as_bytes()),
                Value::Blob(bytes) => (b'b', bytes),
            };
            self.hash.update([kind]);
            self.hash.update((bytes.len() as u64).to_be_bytes());
            self.hash.update(bytes);
        }
    }
}

impl Table {
    fn select(&self, column: impl Fn(&str, Type) -> String) -> String {
        let columns: Vec<_> = self.columns.iter().map(|(name, kind)| column(name, *kind)).collect();
        let key: Vec<_> = self.columns[..self.key].iter().map(|(name, _)| *name).collect();
        format!("SELECT {} FROM {} ORDER BY {}", columns.join(", "), self.name, key.join(", "))
    }

    fn insert(&self) -> String {
        let names = self.columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let given = self.columns.iter().map(|(name, kind)| match kind {
            Uuid => format!("encode({name}, 'hex')::uuid"),
            Integer | Text | Bytes => (*name).to_owned(),
        });
        let given = given.collect::<Vec<_>>().join(", ");
        let arrays = self.columns.iter().enumerate().map(|(position, (_, kind))| {
            let kind = match kind {
                Integer => "bigint",
                Text => "text",
                Bytes | Uuid => "bytea",
            };
            format!("${}::{kind}[]", position + 1)
        });
        let arrays = arrays.collect::<Vec<_>>().join(", ");
        format!("INSERT INTO {} ({names}) SELECT {given} FROM unnest({arrays}) AS given ({names})", self.name)
    }

    /// Converts rows to the arrays that `insert` takes, one for each column.
    fn transpose(&self, rows: &[Vec<Value>]) -> Result<Vec<Box<dyn ToSql + Sync + Send>>> {
        let column = |(position, (name, kind)): (usize, &(&str, Type))| -> Result<Box<dyn ToSql + Sync + Send>> {
            let unexpected = || StoreError::Failed(format!("{}.{name} has a value of an unexpected type", self.name));
            macro_rules! array {
                ($variant:ident) => {{
                    let values = rows.iter().map(|row| match &row[position] {
                        Value::Null => Ok(None),
                        Value::$variant(value) => Ok(Some(value.clone())),
                        _ => Err(unexpected()),
                    });
                    Box::new(values.collect::<Result<Vec<_>>>()?)
                }};
            }
            Ok(match kind {
                Integer => array!(Integer),
                Text => array!(Text),
                Bytes | Uuid => array!(Blob),
            })
        };
        self.columns.iter().enumerate().map(column).collect()
    }

    async fn read_back(&self, transaction: &Transaction<'_>, report: &mut impl FnMut(usize)) -> Result<Summary> {
        let select = self.select(|name, kind| match kind {
            Integer => format!("{name}::bigint"),
            Uuid => format!("uuid_send({name})"),
            Text | Bytes => name.to_owned(),
        });
        let statement = transaction.prepare(&select).await?;
        let portal = transaction.bind(&statement, &[]).await?;
        let mut kept = Summary::default();
        loop {
            let rows = transaction.query_portal(&portal, CHUNK as i32).await?;
            if rows.is_empty() {
                return Ok(kept);
            }
            for row in &rows {
                kept.add(&self.values(row)?);
            }
            report(rows.len());
        }
    }

    fn values(&self, row: &Row) -> Result<Vec<Value>> {
        let value = |(position, (_, kind)): (usize, &(&str, Type))| {
            Ok(match kind {
                Integer => row.try_get::<_, Option<i64>>(position)?.map(Value::Integer),
                Text => row.try_get::<_, Option<String>>(position)?.map(Value::Text),
                Bytes | Uuid => row.try_get::<_, Option<Vec<u8>>>(position)?.map(Value::Blob),
            }
            .unwrap_or(Value::Null))
        };
        self.columns.iter().enumerate().map(value).collect()
    }

    /// Returns the statement that makes the next id greater than all that were copied. `None` if the table assigns no ids.
    fn restart_sequence(&self) -> Option<String> {
        let table = self.name;
        let restart =
            format!("SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table} HAVING count(*) > 0");
        (self.columns[0] == ("id", Integer)).then_some(restart)
    }
}

fn stopped() -> StoreError {
    StoreError::Unavailable("cannot read the embedded database".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_table_and_column_is_copied() {
        let folder = tempfile::tempdir().unwrap();
        let database = Sqlite::open(&crate::store::sqlite::Options::new(folder.path())).unwrap();
        let there = "SELECT t.name || '.' || c.name FROM pragma_table_list t JOIN pragma_table_info(t.name) c
                     WHERE t.type = 'table' AND t.schema = 'main'
                     AND t.name NOT IN ('meta', 'refinery_schema_history', 'sqlite_schema')";
        let mut there: Vec<String> = database
            .read(|conn| Ok(conn.prepare(there)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?))
            .unwrap();
        let columns = |table: &Table| table.columns.iter().map(|(name, _)| format!("{}.{name}", table.name)).collect();
        let mut copied: Vec<String> = TABLES.iter().flat_map(|table| -> Vec<_> { columns(table) }).collect();
        there.sort();
        copied.sort();
        assert_eq!(copied, there, "TABLES lists every column of the schema");
        database.close().await;
    }

    #[test]
    fn summaries_of_different_rows_differ() {
        let summary = |rows: &[Vec<Value>]| {
            let mut summary = Summary::default();
            rows.iter().for_each(|row| summary.add(row));
            summary
        };
        let text = |text: &str| Value::Text(text.into());
        let rows = [vec![text("a"), text("bc")], vec![Value::Null, Value::Integer(1)]];
        assert!(summary(&rows) == summary(&rows));
        assert!(summary(&rows) != summary(&rows[..1]));
        assert!(summary(&[vec![text("a"), text("bc")]]) != summary(&[vec![text("ab"), text("c")]]));
        assert!(summary(&[vec![Value::Null]]) != summary(&[vec![text("")]]));
        assert!(summary(&[vec![Value::Integer(0)]]) != summary(&[vec![Value::Blob(vec![0; 8])]]));
    }
}
