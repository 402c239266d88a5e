//! Concurrent writes, other programs, and the mode of the files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE;
use sqlite_group_commit::{Atomicity, Effect, Error, Options, Result};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};

use crate::{ADD, Number, TIMEOUT, numbers, open, open_with, until};

#[tokio::test]
async fn failed_write_leaves_its_batch_alone() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    let rows = (0..100).map(|number| db.add_row(Number(if number == 50 { 7 } else { number })));
    let refuse = db.submit(Atomicity::Savepoint, Effect::Any, |conn| -> Result<()> {
        conn.execute(ADD, [1_000])?;
        Err(Error::Refused("changed my mind".into()))
    });
    let (added, refused) = tokio::join!(futures(rows), refuse);
    assert!(refused.unwrap_err().is_not_applied());
    for (number, added) in (0..).zip(added) {
        match added {
            Ok(id) => {
                let find = "SELECT number FROM numbers WHERE id = ?1";
                let found: i64 = db.read(|conn| Ok::<_, Error>(conn.query_row(find, [id], |row| row.get(0))?)).unwrap();
                assert_eq!(found, number, "each task gets the id of its own row");
            }
            Err(error) => {
                assert!(matches!(error, Error::Constraint(_, SQLITE_CONSTRAINT_UNIQUE)), "{number}: {error:?}");
                assert!(error.is_not_applied() && number == 50, "{number}: {error:?}");
            }
        }
    }
    assert_eq!(numbers(&db), (0..100).filter(|number| *number != 50).collect());
    db.close().await;
    assert!(matches!(db.add_row(Number(1)).await, Err(Error::Unavailable(_))));
}

/// Some errors end the whole transaction, as a full disk does.
#[tokio::test]
async fn error_that_ends_the_transaction_leaves_no_row_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    let trigger = "AFTER INSERT ON numbers WHEN NEW.number % 10 = 7 BEGIN SELECT raise(ROLLBACK, 'full'); END";
    outside(folder.path()).execute_batch(&format!("CREATE TRIGGER ends_the_transaction {trigger}")).unwrap();
    let added = futures((0..100).map(|number| db.add_row(Number(number)))).await;
    assert!(added[7].is_err());
    let acknowledged = (0..100).zip(added).filter(|(_, added)| added.is_ok()).map(|(number, _)| number);
    assert_eq!(numbers(&db), acknowledged.collect(), "writes that failed have no effect");
}

#[tokio::test]
async fn full_queue_rejects_and_keeps_its_writes() {
    let folder = tempfile::tempdir().unwrap();
    let db = Arc::new(open_with(folder.path(), &Options { queue: 2, busy_timeout: TIMEOUT, ..Options::default() }));
    let lock = outside(folder.path());
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let write = |number| {
        let db = Arc::clone(&db);
        tokio::spawn(
            async move { db.submit_long(Atomicity::Statement, move |conn| Ok(conn.execute(ADD, [number])?)).await },
        )
    };
    // The writer waits for the lock with the first write alone.
    let mut writes = vec![write(0)];
    tokio::task::yield_now().await;
    until(async || db.queued() == Some(0)).await;
    writes.extend((1..20).map(write));
    // Two wait in the queue behind the first.
    let refused = |writes: &[JoinHandle<_>]| writes.iter().filter(|write| write.is_finished()).count();
    until(async || refused(&writes) >= 17).await;
    assert_eq!(refused(&writes), 17);
    lock.execute_batch("ROLLBACK").unwrap();
    let mut came_through = 0;
    for write in writes {
        match write.await.unwrap() {
            Ok(_) => came_through += 1,
            Err(error) => assert!(matches!(error, Error::Unavailable(_)), "{error}"),
        }
    }
    assert_eq!((came_through, numbers(&db).len()), (3, 3));
}

#[tokio::test]
async fn queued_writes_share_one_wait_for_a_foreign_lock() {
    const WRITES: usize = 3_000;
    let folder = tempfile::tempdir().unwrap();
    // Long enough for all writes to be queued before the first one is answered.
    let busy_timeout = Duration::from_secs(5);
    let db = Arc::new(open_with(folder.path(), &Options { busy_timeout, queue: WRITES, ..Options::default() }));
    let lock = outside(folder.path());
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut writes = JoinSet::new();
    for number in 0..WRITES as i64 {
        let db = Arc::clone(&db);
        writes.spawn(async move { db.add_row(Number(number)).await });
    }
    let is_refused = |written: std::result::Result<Result<i64>, _>| matches!(written, Ok(Err(Error::Unavailable(_))));
    assert!(is_refused(writes.join_next().await.unwrap()));
    // A batch that waited again would find the database free.
    lock.execute_batch("ROLLBACK").unwrap();
    while let Some(written) = writes.join_next().await {
        assert!(is_refused(written));
    }
    db.add_row(Number(0)).await.unwrap();
    assert_eq!(numbers(&db), [0].into(), "rejected writes have no effect");
}

#[tokio::test]
async fn other_writers_get_their_turn_beside_one_that_never_rests() {
    let folder = tempfile::tempdir().unwrap();
    let (busy, other) = (open(folder.path()), outside(folder.path()));
    other.busy_timeout(Duration::ZERO).unwrap();
    let slow_write = || {
        busy.submit(Atomicity::Statement, Effect::Any, |_| {
            std::thread::sleep(Duration::from_millis(500));
            Ok(())
        })
    };
    // One is always queued while the other is carried out, as behind a disk with slow syncs.
    let never_rests = async || loop {
        slow_write().await.unwrap();
    };
    // Tries for a minute, so rarely that it does not find the moment between two commits by chance.
    let writes = spawn_blocking(move || {
        let mut next = 0;
        for _ in 0..30_000 {
            std::thread::sleep(Duration::from_millis(2));
            if other.execute(ADD, [next]).is_ok() {
                next += 1;
            }
            if next == 8 {
                return;
            }
        }
        panic!("only {next} of 8 numbers are written");
    });
    tokio::select! {
        () = async { tokio::join!(never_rests(), never_rests()); } => unreachable!("they never end"),
        written = writes => written.unwrap(),
    }
}

#[tokio::test]
async fn idle_reader_does_not_hold_the_log_back() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    db.add_row(Number(1)).await.unwrap();
    // The reader keeps its transaction, and nothing is committed that would end it.
    assert_eq!(numbers(&db), [1].into());
    until(async || db.reads() == 0).await;
    let other = outside(folder.path());
    other.busy_timeout(Duration::ZERO).unwrap();
    let write_back = async || {
        other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map(|busy: i64| busy == 0).unwrap()
    };
    until(write_back).await;
}

#[tokio::test]
async fn files_are_private_even_in_an_open_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let db = open(folder.path());
    db.add_row(Number(1)).await.unwrap();
    for file in ["test.db", "test.db-wal", "test.db-shm", "test.lock"] {
        let mode = std::fs::metadata(folder.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

/// A connection of another program.
pub fn outside(folder: &Path) -> Connection {
    let conn = Connection::open(folder.join("test.db")).unwrap();
    conn.busy_timeout(TIMEOUT).unwrap();
    conn
}

/// Awaits all futures, and polls each before it waits for the first.
async fn futures<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = all.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in all.iter_mut().filter(|(_, output)| output.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(context) {
                *output = Some(value);
            }
        }
        if all.iter().all(|(_, output)| output.is_some()) { ().into() } else { std::task::Poll::Pending }
    })
    .await;
    all.into_iter().filter_map(|(_, output)| output).collect()
}
