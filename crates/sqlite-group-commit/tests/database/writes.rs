//! Errors of writes, backups, versions, and the schema.

use std::fs::File;
use std::path::Path;

use rusqlite::{Connection, Statement};
use sqlite_group_commit::{
    Atomicity, Database, Effect, Error, Folder, Insert, NewRow, Options, Result, Steps, Target, back_up_unmigrated,
    restore,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::{ADD, Number, SCHEMA, STEPS, guest_book, numbers, open};

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
async fn database_that_is_a_link_or_has_too_long_a_path_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = |dir: &Path| Database::open(&Folder::new(dir, "test"), &Options::default(), &SCHEMA);
    open(&folder.path().join("data")).unwrap().close().await;
    std::os::unix::fs::symlink(folder.path().join("data/test.db"), folder.path().join("test.db")).unwrap();
    assert!(matches!(open(folder.path()), Err(Error::Link(_))));
    // The longest path has 504 bytes.
    let rest = 504 - "/test.db".len() - folder.path().as_os_str().len();
    let deep = |length: usize| {
        let parts = [100, 100, 100, length - 304].map(|length| "d".repeat(length));
        folder.path().join(parts.join("/"))
    };
    open(&deep(rest)).unwrap().close().await;
    assert!(matches!(open(&deep(rest + 1)), Err(Error::Failed(why)) if why.contains("has 505 bytes")));
}

#[test]
fn files_of_a_database_are_no_targets() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, path) = (folder.path().join("data"), folder.path().canonicalize().unwrap());
    drop(open(&dir));
    let data = Folder::new(&dir, "test");
    for (name, target) in [("own", "data/test.db"), ("new", "new.db")] {
        std::os::unix::fs::symlink(path.join(target), path.join(name)).unwrap();
    }
    for own in ["data/test.db", "data/test.db-wal", "data/test.lock", "own"] {
        assert!(data.outside(&path.join(own)).is_err(), "{own}");
    }
    for (name, target) in [("new", "new.db"), ("data/backup.db", "data/backup.db"), ("test.db", "test.db")] {
        assert_eq!(data.outside(&path.join(name)).unwrap(), path.join(target));
    }
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
    assert!(matches!(to(false), Err(Error::Exists(_))));
    to(true).unwrap();
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
    let (file, length) = (folder.path().join("backup.db"), log.metadata().unwrap().len());
    let copy = |log_length| {
        db.back_up(Target { file: &file, replace: false }, &SCHEMA, &mut |_, _| log.set_len(log_length).is_ok())
    };
    assert!(copy((512 << 20) + 1).unwrap_err().to_string().contains("too much was written during the backup"));
    log.set_len(length).unwrap();
    copy(512 << 20).unwrap();
}

#[tokio::test]
async fn version_changes_with_each_commit() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    // From now on, the idle writer commits nothing.
    db.add_row(Number(1)).await.unwrap();
    let before = db.version().unwrap();
    assert!(db.epoch(&before).is_some());
    db.add_row(Number(2)).await.unwrap();
    assert!(db.version() != Some(before) && db.epoch(&before).is_none());
    db.close().await;
    assert!(db.version().is_none());
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
