//! Behaviour specific to the embedded database.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::ready;
use futures_util::stream::FuturesUnordered;
use petstore::domain::{AccountId, MessageQuery, NewAccount, NewPet, PetStatus};
use petstore::store::sqlite::{Atomicity, DatabaseOptions, Effect, Options, Sqlite};
use petstore::store::{Store, StoreError};
use rusqlite::Connection;
use testkit::{Database, TIMEOUT, until, within};
use tokio::task::JoinHandle;

use crate::fixtures::{NOW, OPERATOR, account, create_pet, email, message, new_pet, open_sqlite, spawn};

#[tokio::test]
async fn idle_reader_does_not_hold_the_wal_back() {
    let (folder, store) = open();
    let id = create_pet(&store, "Rex", PetStatus::Available).await.unwrap();
    // The reader keeps its transaction, and nothing is committed that would end it.
    store.find_pet(id).await.unwrap().unwrap();
    let other = outside(folder.path());
    other.busy_timeout(Duration::ZERO).unwrap();
    within(TIMEOUT, "writing the whole WAL back", || {
        other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map(|busy: i64| busy == 0).unwrap()
    });
}

#[tokio::test]
async fn full_queue_rejects_and_keeps_its_writes() {
    let folder = tempfile::tempdir().unwrap();
    let database = DatabaseOptions { queue: 2, busy_timeout: TIMEOUT, ..DatabaseOptions::default() };
    let store = open_sqlite(&Options { database, ..Options::new(folder.path()) });
    let lock = outside(folder.path());
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let write = || spawn(&store, |store| async move { store.create_pet(rex(), None).await });
    // The writer waits for the lock with the first write alone.
    let mut writes = vec![write()];
    tokio::task::yield_now().await;
    until(async || store.meters().writers[0].2 == 0).await;
    writes.extend((0..19).map(|_| write()));
    // Two wait in the queue behind the first.
    let refused = |writes: &[JoinHandle<_>]| writes.iter().filter(|write| write.is_finished()).count();
    until(async || refused(&writes) >= 17).await;
    assert_eq!(refused(&writes), 17);
    lock.execute_batch("ROLLBACK").unwrap();
    let mut came_through = 0;
    for write in writes {
        match write.await.unwrap() {
            Ok(_) => came_through += 1,
            Err(error) => assert!(matches!(error, StoreError::Unavailable(_)), "{error}"),
        }
    }
    assert_eq!(came_through, 3);
    assert_eq!(store.count_pets().await.unwrap(), came_through as u64);
}

#[tokio::test]
async fn queued_writes_share_one_wait_for_a_foreign_lock() {
    const WRITES: usize = 3_000;
    let folder = tempfile::tempdir().unwrap();
    // Long enough for all writes to be queued before the first one is answered.
    let busy_timeout = Duration::from_secs(5);
    let database = DatabaseOptions { busy_timeout, queue: WRITES, ..DatabaseOptions::default() };
    let store = open_sqlite(&Options { database, ..Options::new(folder.path()) });
    let lock = outside(folder.path());
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut creates: FuturesUnordered<_> = (0..WRITES).map(|_| store.create_pet(rex(), None)).collect();
    assert!(matches!(creates.next().await, Some(Err(StoreError::Unavailable(_)))));
    // A batch that waited again would find the database free.
    lock.execute_batch("ROLLBACK").unwrap();
    let refused = creates.filter(|created| ready(matches!(created, Err(StoreError::Unavailable(_)))));
    assert_eq!(refused.count().await, WRITES - 1);
    store.create_pet(rex(), None).await.unwrap();
    assert_eq!(store.count_pets().await.unwrap(), 1, "rejected writes have no effect");
}

#[tokio::test]
async fn other_writers_get_their_turn_beside_one_that_never_rests() {
    let folder = tempfile::tempdir().unwrap();
    let busy = Sqlite::open(&Options::new(folder.path())).unwrap();
    let file = folder.path().join("rex.ndjson");
    std::fs::write(&file, r#"{"name":"Rex","categoryId":1}"#).unwrap();
    let other_writes = async || {
        let mut import = Database::folder(folder.path()).petstore(&format!("pets import {}", file.display()));
        tokio::task::spawn_blocking(move || import.output().unwrap().status.success()).await.unwrap()
    };
    let (began, mut has_begun) = tokio::sync::watch::channel(());
    let slow_write = || {
        let began = began.clone();
        busy.submit(Atomicity::Statement, Effect::Any, move |_| {
            began.send_replace(());
            std::thread::sleep(Duration::from_millis(250));
            Ok(())
        })
    };
    // One is always queued while the other is carried out, as behind a disk with slow syncs.
    let never_rests = async || loop {
        slow_write().await.unwrap();
    };
    let writes = async {
        for _ in 0..5 {
            has_begun.changed().await.unwrap();
            // On a busy machine, the process may be late for several turns.
            until(other_writes).await;
        }
    };
    tokio::select! {
        () = async { tokio::join!(never_rests(), never_rests()); } => unreachable!("they never end"),
        () = writes => {}
    }
}

#[tokio::test]
async fn failing_statement_does_not_fail_its_batch() {
    let (folder, store) = open();
    // The next id would be 2^53, which the table refuses.
    outside(folder.path())
        .execute("INSERT INTO pets (id, name, category_id, status) VALUES (9007199254740991, 'last', 1, 0)", [])
        .unwrap();
    let ada = email("ada@example.com");
    let (pet, account) = tokio::join!(
        store.create_pet(rex(), None),
        store.create_account(NewAccount::customer(ada.clone(), None, NOW), OPERATOR)
    );
    assert!(matches!(pet, Err(StoreError::Failed(_))), "{pet:?}");
    account.unwrap().unwrap();
    assert!(store.find_account(&ada).await.unwrap().is_some());
}

/// Some errors end the whole transaction, as a full disk does.
#[tokio::test]
async fn error_that_ends_the_transaction_leaves_no_row_of_it() {
    let (folder, store) = open();
    let trigger = "AFTER INSERT ON pets WHEN NEW.name LIKE '%7' BEGIN SELECT raise(ROLLBACK, 'full'); END";
    outside(folder.path()).execute_batch(&format!("CREATE TRIGGER ends_the_transaction {trigger}")).unwrap();
    let pets = (0..100).map(|n| store.create_pet(new_pet(&n.to_string(), PetStatus::Available), None));
    let created = futures_util::future::join_all(pets).await;
    assert!(created[7].is_err());
    let acknowledged = created.iter().filter(|created| created.is_ok()).count();
    assert_eq!(store.count_pets().await.unwrap(), acknowledged as u64, "requests that failed have no effect");
}

/// A store in a temporary folder.
fn open() -> (tempfile::TempDir, Arc<Store>) {
    let folder = tempfile::tempdir().unwrap();
    let store = open_sqlite(&Options::new(folder.path()));
    (folder, store)
}

/// A connection of another program.
fn outside(folder: &Path) -> Connection {
    let conn = Connection::open(folder.join("petstore.db")).unwrap();
    conn.busy_timeout(Duration::from_secs(5)).unwrap();
    conn
}

fn rex() -> NewPet {
    new_pet("Rex", PetStatus::Available)
}

#[tokio::test]
async fn files_are_private_even_in_an_open_folder() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let store = open_sqlite(&Options::new(folder.path()));
    store.create_pet(rex(), None).await.unwrap();
    for file in ["petstore.db", "petstore.db-wal", "petstore.db-shm", "petstore.lock"] {
        let mode = std::fs::metadata(folder.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[tokio::test]
async fn rows_of_several_requests_fail_alone() {
    let (_folder, store) = open();
    let known = account(&store, "a@example.com").await;
    let messages = (0..100).map(|n| {
        let account = if n == 50 { AccountId(known.0 + 1) } else { known };
        message(account, &n.to_string(), NOW)
    });
    let sent = futures_util::future::join_all(messages.map(|message| store.create_message(message, None))).await;
    let refused: Vec<_> = (0..100).filter(|n| sent[*n].is_err()).collect();
    assert_eq!(refused, [50]);
    assert_eq!(store.count_messages(&MessageQuery::default()).await.unwrap(), 99);

    let pets = (0..100).map(|n| store.create_pet(new_pet(&format!("{n}"), PetStatus::Available), None));
    let created = futures_util::future::join_all(pets);
    for (n, id) in created.await.into_iter().enumerate() {
        let id = id.unwrap().executed().unwrap().id;
        let found = store.find_pet(id).await.unwrap().unwrap();
        assert_eq!(found.name, format!("{n}"), "each request gets the id of its own animal");
    }
}
