//! What is particular to the embedded database.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use petstore::domain::{Deployment, NewPet, PageLimit, PetName, PetQuery, PetStatus};
use petstore::store::sqlite::{Atomicity, Options, Sqlite};
use petstore::store::{Store, StoreError};
use rusqlite::Connection;

#[tokio::test]
async fn database_belongs_to_one_deployment() {
    let folder = tempfile::tempdir().unwrap();
    let staging = Options { deployment: Some(Deployment::Staging), ..Options::new(folder.path()) };
    open(&staging).await.close().await;

    let remembered = open(&Options::new(folder.path())).await;
    assert_eq!(remembered.deployment(), Deployment::Staging);
    remembered.close().await;

    let production = Options { deployment: Some(Deployment::Production), ..Options::new(folder.path()) };
    let refused = Sqlite::open(&production).unwrap_err();
    assert_eq!(refused.to_string(), "the database is a staging one and can't be opened as production");
}

#[tokio::test]
async fn database_is_created_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { create: None, ..Options::new(folder.path()) };
    assert!(matches!(Sqlite::open(&options), Err(StoreError::Failed(_))));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn newer_database_is_rejected_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    open(&Options::new(folder.path())).await.close().await;
    outside(folder.path())
        .execute("INSERT INTO refinery_schema_history (version, name, applied_on, checksum) VALUES (999, 'later', '2030-01-01T00:00:00Z', '1')", [])
        .unwrap();
    let refused = Sqlite::open(&Options::new(folder.path())).unwrap_err().to_string();
    assert!(refused.contains("schema version 999") && refused.contains("use a newer petstore"), "{refused}");
}

#[tokio::test]
async fn closing_leaves_one_complete_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&Options::new(folder.path())).await;
    store.create_pet(rex(), None).await.unwrap();
    store.count_pets().await.unwrap();
    store.close().await;
    assert!(!folder.path().join("petstore.db-wal").exists());
    assert_eq!(count_outside(folder.path()), 1);
}

#[tokio::test]
async fn commit_of_any_process_is_seen_by_the_next_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&Options::new(folder.path())).await;
    let other = outside(folder.path());
    for round in 0..200 {
        // One of them through the store, one beside it, in turns: no read in between may keep an old view.
        if round % 2 == 0 {
            store.create_pet(rex(), None).await.unwrap();
        } else {
            other.execute("INSERT INTO pets (name, category_id, status) VALUES ('Mimi', 1, 0)", []).unwrap();
        }
        assert_eq!(store.count_pets().await.unwrap(), round + 1);
        assert!(store.find_pet(round as i64 + 1).await.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_never_miss_an_answered_commit_under_concurrent_writes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&Options::new(folder.path())).await;
    let (answered, done) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicBool::new(false)));
    let writers = (0..8).map(|_| {
        let (store, answered) = (Arc::clone(&store), Arc::clone(&answered));
        tokio::spawn(async move {
            for _ in 0..200 {
                let id = store.create_pet(rex(), None).await.unwrap().executed().unwrap().id;
                answered.fetch_max(id, Ordering::SeqCst);
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let readers = (0..4).map(|_| {
        let (store, answered, done) = (Arc::clone(&store), Arc::clone(&answered), Arc::clone(&done));
        tokio::spawn(async move {
            let mut reads = 0_u64;
            while !done.load(Ordering::SeqCst) {
                let newest = answered.load(Ordering::SeqCst);
                let mut seen = None;
                let query = PetQuery { limit: PageLimit::new(1).unwrap(), status: None, after: Some(newest - 1) };
                store.list_pets(&query, &mut |pet| seen = Some(pet.id)).await.unwrap();
                assert!(newest == 0 || seen == Some(newest), "{newest} was answered, {seen:?} was seen");
                reads += 1;
                tokio::task::yield_now().await;
            }
            reads
        })
    });
    let readers: Vec<_> = readers.collect();
    for writer in writers {
        writer.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
}

#[tokio::test]
async fn wal_stays_bounded_under_long_readers() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&Options::new(folder.path())).await;
    let wal = folder.path().join("petstore.db-wal");
    let mut largest = 0;
    // About 330 MiB pass through the log, which is written back every 16 MiB.
    for _ in 0..30 {
        // A thread's view is kept from here on, while the writer goes on.
        let reader = Arc::clone(&store);
        let read = async move { reader.list_pets(&PetQuery::default(), &mut |_| ()).await.unwrap() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        std::thread::spawn(move || runtime.block_on(read)).join().unwrap();
        let animals = (0..2_000).map(|_| Ok(NewPet { name: PetName::parse("🦊".repeat(255)).unwrap(), ..rex() }));
        store.import_pets(Box::new(animals)).await.unwrap();
        largest = largest.max(std::fs::metadata(&wal).unwrap().len());
    }
    assert!(largest < 48 << 20, "the log grew to {} MiB", largest >> 20);
}

#[tokio::test]
async fn full_queue_rejects_and_keeps_its_writes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&Options { queue: 2, ..Options::new(folder.path()) }).await;
    let lock = outside(folder.path());
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let write = || {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.create_pet(rex(), None).await })
    };
    // The writer takes the first one alone, and waits with it for the lock.
    let mut writes = vec![write()];
    tokio::time::sleep(Duration::from_millis(300)).await;
    writes.extend((0..19).map(|_| write()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let refused_early = writes.iter().filter(|write| write.is_finished()).count();
    lock.execute_batch("ROLLBACK").unwrap();
    let mut came_through = 0;
    for write in writes {
        match write.await.unwrap() {
            Ok(_) => came_through += 1,
            Err(error) => assert!(matches!(error, StoreError::Unavailable(_)), "{error}"),
        }
    }
    assert_eq!(refused_early, 17, "two wait in the queue, behind the one that waits for the lock");
    assert_eq!(came_through, 20 - refused_early);
    assert_eq!(store.count_pets().await.unwrap(), came_through as u64);
}

#[tokio::test]
async fn write_waits_for_a_foreign_lock_then_fails() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&Options { busy_timeout: Duration::from_millis(100), ..Options::new(folder.path()) }).await;
    let lock = outside(folder.path());
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    assert!(matches!(store.create_pet(rex(), None).await, Err(StoreError::Unavailable(_))));
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert_eq!(store.count_pets().await.unwrap(), 0, "reads go on");
    lock.execute_batch("ROLLBACK").unwrap();
    store.create_pet(rex(), None).await.unwrap();
}

#[tokio::test]
async fn queued_writes_share_one_wait_for_a_foreign_lock() {
    const WAIT: Duration = Duration::from_secs(1);
    let folder = tempfile::tempdir().unwrap();
    let store = open(&Options { busy_timeout: WAIT, queue: 2_000, ..Options::new(folder.path()) }).await;
    let lock = outside(folder.path());
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = Instant::now();
    // As many as there is room for, and that is far more than a batch takes. They all wait before the first is answered.
    let creates = futures_util::future::join_all((0..3_000).map(|_| store.create_pet(rex(), None)));
    let refused = creates.await.into_iter().filter(|created| matches!(created, Err(StoreError::Unavailable(_))));
    assert_eq!(refused.count(), 3_000);
    assert!(began.elapsed() < 2 * WAIT, "batch after batch would have waited {:?}", began.elapsed());
    lock.execute_batch("ROLLBACK").unwrap();
    store.create_pet(rex(), None).await.unwrap();
    assert_eq!(store.count_pets().await.unwrap(), 1, "what was refused left nothing behind");
}

#[tokio::test]
async fn writer_panic_is_reported_to_callers_and_process() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&Options::new(folder.path())).await;
    store.create_pet(rex(), None).await.unwrap();
    let bomb = std::iter::once_with(|| panic!("a bug")).chain(std::iter::once(Ok(rex())));
    assert!(matches!(store.import_pets(Box::new(bomb)).await, Err(StoreError::Unavailable(_))));
    assert_eq!(store.failed().await, "the writer panicked");
    assert!(matches!(store.check().await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.create_pet(rex(), None).await, Err(StoreError::Unavailable(_))));
    store.close().await;
    assert_eq!(count_outside(folder.path()), 1, "what was answered is there, and nothing of the rest");
}

#[tokio::test]
async fn failing_statement_does_not_fail_its_batch() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&Options::new(folder.path())).await;
    // The next id would be 2^53, which the table refuses.
    outside(folder.path())
        .execute("INSERT INTO pets (id, name, category_id, status) VALUES (9007199254740991, 'last', 1, 0)", [])
        .unwrap();
    let email = petstore::domain::Email::parse("ada@example.com").unwrap();
    let now = petstore::domain::Timestamp::from_milliseconds(0);
    let (pet, account) = tokio::join!(store.create_pet(rex(), None), store.create_account(email.clone(), None, now));
    assert!(matches!(pet, Err(StoreError::Failed(_))), "{pet:?}");
    account.unwrap().unwrap();
    assert!(store.find_account(&email).await.unwrap().is_some());
}

#[test]
fn writer_syncs_every_commit() {
    // What the promise of durability hangs on; the rest of it is tested by crashing.
    let folder = tempfile::tempdir().unwrap();
    let database = Sqlite::open(&Options::new(folder.path())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let settings = runtime.block_on(database.submit(Atomicity::Statement, |conn| {
        let pragma =
            |name: &str| conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get_ref(0).map(|v| format!("{v:?}")));
        Ok([pragma("journal_mode")?, pragma("synchronous")?, pragma("foreign_keys")?])
    }));
    let settings = settings.unwrap();
    assert!(settings[0].contains("119, 97, 108"), "WAL: {}", settings[0]);
    assert_eq!(settings[1], "Integer(2)", "FULL");
    assert_eq!(settings[2], "Integer(1)");
}

async fn open(options: &Options) -> Arc<Store> {
    Arc::new(Store::Sqlite(Sqlite::open(options).unwrap()))
}

/// A connection that petstore knows nothing of.
fn outside(folder: &Path) -> Connection {
    let conn = Connection::open(folder.join("petstore.db")).unwrap();
    conn.busy_timeout(Duration::from_secs(5)).unwrap();
    conn
}

fn count_outside(folder: &Path) -> i64 {
    outside(folder).query_row("SELECT count(*) FROM pets", [], |row| row.get(0)).unwrap()
}

fn rex() -> NewPet {
    NewPet { name: PetName::parse("Rex".into()).unwrap(), category_id: 1, status: PetStatus::Available }
}

#[tokio::test]
async fn files_are_private_even_in_an_open_folder() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let store = open(&Options::new(folder.path())).await;
    store.create_pet(rex(), None).await.unwrap();
    for file in ["petstore.db", "petstore.db-wal", "petstore.db-shm", "petstore.lock"] {
        let mode = std::fs::metadata(folder.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}
