//! Durability, errors of writes, backups, and the schema.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::{Connection, Statement};
use sqlite_group_commit::{
    Atomicity, Database, Effect, Error, Folder, Insert, NewRow, Options, Result, Steps, Target, back_up_unmigrated,
    restore,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{ADD, Number, SCHEMA, STEPS, TIMEOUT, guest_book, numbers, open, until};

/// Folder of the database, set if this test binary runs as the process that is killed.
const KILLED: &str = "GROUP_COMMIT_TEST_FOLDER";

#[test]
fn killed_process_loses_no_acknowledged_write() {
    if let Some(folder) = std::env::var_os(KILLED) {
        write_until_killed(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeSet::new();
    for round in 1..=5 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["durability::killed_process_loses_no_acknowledged_write", "--exact", "--nocapture"]);
        let mut child = command.env(KILLED, folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let mut of_round = 0;
        // Lines that were in the pipe when the process was killed are acknowledged writes, too.
        while lines.read_line(&mut line).unwrap() > 0 {
            if let Some(number) = line.strip_suffix('\n').and_then(|line| line.strip_prefix("acknowledged ")) {
                acknowledged.insert(number.parse().unwrap());
                of_round += 1;
            }
            if of_round == 500 {
                child.kill().unwrap();
            }
            line.clear();
        }
        assert!(!child.wait().unwrap().success());
        assert!(of_round >= 500, "round {round}: {of_round}");
    }
    let there = numbers(&open(folder.path()));
    let lost: Vec<_> = acknowledged.difference(&there).collect();
    assert_eq!(lost, [0_i64; 0].iter().collect::<Vec<_>>());
}

/// Adds numbers that follow those of earlier processes, on many tasks, and prints each once it is acknowledged.
fn write_until_killed(folder: &Path) -> ! {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _in_runtime = runtime.enter();
    let db = Arc::new(open(folder));
    let next = Arc::new(AtomicI64::new(numbers(&db).last().map_or(0, |last| last + 1)));
    let mut writers = JoinSet::new();
    for kind in 0..32 {
        let (db, next) = (Arc::clone(&db), Arc::clone(&next));
        writers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let write = move |conn: &sqlite_group_commit::WriteConnection<'_>| {
                    conn.execute(ADD, [number])?;
                    Ok(conn.last_insert_rowid())
                };
                match kind % 2 {
                    0 => db.add_row(Number(number)).await,
                    _ => db.submit(Atomicity::Savepoint, Effect::Any, write).await,
                }
                .unwrap();
                // A child that nobody reads any longer ends.
                if writeln!(std::io::stdout(), "acknowledged {number}").is_err() {
                    std::process::exit(1);
                }
            }
        });
    }
    // Reached if a write fails, or if nobody kills this process.
    let _ = runtime.block_on(async { timeout(TIMEOUT, writers.join_next()).await });
    std::process::exit(1);
}

#[tokio::test]
async fn error_tells_if_the_write_was_applied() {
    const FILL: &str = "PRAGMA max_page_count = 1; CREATE TABLE large AS SELECT zeroblob(1000000)";
    const DEFERRED: &str = "CREATE TABLE parts (number REFERENCES numbers (id) DEFERRABLE INITIALLY DEFERRED);
        INSERT INTO parts VALUES (1000)";
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    let cases = [
        (Atomicity::Statement, "", "refused", true),
        (Atomicity::Savepoint, "", "refused", false),
        (Atomicity::Savepoint, "SAVEPOINT job; SELECT refused", "refused", false),
        (Atomicity::Batch, "", "refused", false),
        (Atomicity::Savepoint, "COMMIT", "a job ended the transaction", true),
        (Atomicity::Savepoint, "ROLLBACK", "a job ended the transaction", false),
        (Atomicity::Batch, DEFERRED, "FOREIGN KEY", false),
        (Atomicity::Batch, FILL, "full", false),
    ];
    for (number, (atomicity, after, text, is_applied)) in (0..).zip(cases) {
        let write = move |conn: &sqlite_group_commit::WriteConnection<'_>| {
            conn.execute(ADD, [number])?;
            conn.execute_batch(after)?;
            if after.is_empty() { Err(Error::Exists("refused".into())) } else { Ok(()) }
        };
        let error = db.submit(atomicity, Effect::Any, write).await.unwrap_err();
        assert!(error.to_string().contains(text), "{number}: {error:?}");
        assert_eq!((numbers(&db).contains(&number), error.is_not_applied()), (is_applied, !is_applied), "{error:?}");
    }
}

/// A row whose insertion fails after its statement.
struct Late(i64);

impl NewRow for Late {
    const INSERT: Insert = Number::INSERT;
    const EFFECT: Effect = Number::EFFECT;
    type Added = i64;

    fn bind(&self, statement: &mut Statement<'_>, first: usize) -> rusqlite::Result<()> {
        Number(self.0).bind(statement, first)
    }

    fn added(self, rowid: i64) -> i64 {
        rowid
    }

    fn insert(self, conn: &sqlite_group_commit::WriteConnection<'_>) -> Result<i64> {
        conn.execute(ADD, [self.0])?;
        Err(Error::Refused("refused".into()))
    }
}

#[tokio::test]
async fn error_after_a_row_was_added_is_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    let error = db.add_row(Late(1)).await.unwrap_err();
    assert_eq!((numbers(&db), error.is_not_applied()), ([1].into(), false), "{error:?}");
    let error = db.add_row(Late(1)).await.unwrap_err();
    assert!(matches!(error, Error::Constraint(..)), "{error:?}");
}

#[test]
fn write_within_a_read_is_a_bug_of_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let written = open(folder.path()).read(|conn| Ok::<_, Error>(conn.execute(ADD, [1])?));
    assert!(matches!(written, Err(Error::Failed(_))), "{written:?}");
}

#[tokio::test]
async fn process_opens_a_database_once() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, link, file) = (folder.path().join("data"), folder.path().join("link"), folder.path().join("backup.db"));
    let db = open(&dir);
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    for again in [&dir, &link].map(|dir| Folder::new(dir, "test")) {
        let opened = Database::open(&again, &Options::default(), &SCHEMA).map(drop);
        let target = Target { file: &file, replace: false };
        let copied = back_up_unmigrated(&again, target, &SCHEMA, &mut |_, _| true).map(drop);
        for refused in [opened, copied].map(Result::unwrap_err) {
            let is_open = |why: &String| why.contains("this process has the database in");
            assert!(matches!(&refused, Error::Unavailable(why) if is_open(why)), "{refused:?}");
        }
    }
    db.add_row(Number(1)).await.unwrap();
    db.close().await;
    drop(db);
    assert_eq!(numbers(&open(&dir)), [1].into());
}

#[tokio::test]
async fn restore_brings_back_the_backup() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup.db");
    let data = Folder::new(folder.path().join("data"), "test");
    let target = Target { file: &file, replace: false };
    let db = Database::open(&data, &Options::default(), &SCHEMA).unwrap();
    db.add_row(Number(1)).await.unwrap();
    let size = db.back_up(target, &SCHEMA, &mut |_, _| true).unwrap();
    assert_eq!(size, file.metadata().unwrap().len());
    db.add_row(Number(2)).await.unwrap();

    let to = |replace| {
        let add = |conn: &Connection| Ok(conn.execute(ADD, [3]).map(drop)?);
        restore(&file, &data, &SCHEMA, replace, add, &mut |_, _| true)
    };
    assert!(to(true).unwrap_err().to_string().contains("is in use"));
    db.close().await;
    drop(db);
    assert!(matches!(back_up_unmigrated(&data, target, &SCHEMA, &mut |_, _| true), Err(Error::Exists(_))));
    // A process that another test starts shares this process's locks from its fork until its `exec`.
    until(async || matches!(to(false), Err(Error::Exists(_)))).await;
    until(async || to(true).is_ok()).await;
    let db = Database::open(&data, &Options { create: false, ..Options::default() }, &SCHEMA).unwrap();
    assert_eq!(numbers(&db), [1, 3].into());
    db.close().await;
}

#[tokio::test]
async fn backup_ends_when_the_log_grows_too_long() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)
                INSERT INTO numbers (number) SELECT i FROM n";
    db.submit_long(Atomicity::Statement, |conn| Ok(conn.execute(many, [])?)).await.unwrap();
    let log = File::options().write(true).open(folder.path().join("test.db-wal")).unwrap();
    let target = Target { file: &folder.path().join("backup.db"), replace: false };
    let copied = db.back_up(target, &SCHEMA, &mut |_, _| log.set_len((512 << 20) + 1).is_ok());
    assert!(copied.unwrap_err().to_string().contains("too much was written during the backup"));
}

#[tokio::test]
async fn older_copy_of_the_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test.db");
    let db = open(folder.path());
    db.add_row(Number(1)).await.unwrap();
    db.close().await;
    drop(db);
    let old = std::fs::read(&file).unwrap();
    let db = open(folder.path());
    db.add_row(Number(2)).await.unwrap();
    db.close().await;
    drop(db);
    std::fs::write(&file, old).unwrap();
    let opened = Database::open(&Folder::new(folder.path(), "test"), &Options::default(), &SCHEMA);
    assert!(matches!(opened, Err(Error::Apart { .. })), "{opened:?}");
}

#[tokio::test]
async fn later_steps_are_applied_and_other_schemas_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = |steps| Database::open(&Folder::new(folder.path(), "test"), &Options::default(), &Steps(steps));
    let missing =
        Database::open(&Folder::new(folder.path(), "test"), &Options { create: false, ..Options::default() }, &SCHEMA);
    assert!(matches!(missing, Err(Error::Missing(_))), "{missing:?}");
    open(STEPS).unwrap().close().await;
    const LATER: &[&str] = &[STEPS[0], "ALTER TABLE numbers ADD COLUMN name TEXT"];
    const CHANGED: &[&str] = &["CREATE TABLE other (id INTEGER)", LATER[1]];
    let db = open(LATER).unwrap();
    db.read(|conn| Ok::<_, Error>(conn.execute_batch("SELECT name FROM numbers")?)).unwrap();
    db.close().await;
    drop(db);
    for other in [STEPS, CHANGED] {
        assert!(open(other).unwrap_err().to_string().contains("another version"));
    }
    let foreign = folder.path().join("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE other (id INTEGER)").unwrap();
    let opened = Database::open(&Folder::new(folder.path(), "foreign"), &Options::default(), &SCHEMA);
    assert!(opened.unwrap_err().to_string().contains("another program made this database"));
}

#[tokio::test]
async fn guest_book_keeps_its_guests() {
    let folder = tempfile::tempdir().unwrap();
    for (guest, expected) in [("Ada", "Ada"), ("Ben", "Ben, Ada")] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, (stop, stopped)) = (listener.local_addr().unwrap(), oneshot::channel::<()>());
        let dir = folder.path().to_str().unwrap().to_owned();
        let service = tokio::spawn(async move {
            guest_book::run(listener, &dir, async { stopped.await.unwrap() }).await.map_err(|error| error.to_string())
        });
        let send = async |head: String| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).await.unwrap();
            response
        };
        let length = guest.len();
        let post =
            format!("POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{guest}");
        assert!(send(post).await.starts_with("HTTP/1.1 200 "));
        let listed = send("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".into()).await;
        assert!(listed.ends_with(&format!("\r\n\r\n{expected}")), "{listed}");
        stop.send(()).unwrap();
        service.await.unwrap().unwrap();
    }
}
