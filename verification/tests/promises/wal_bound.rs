//! Promise 35: the write-ahead log is bounded even under an endless reader, and exports do not hold it.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use petstore::domain::{AccountId, Email, Message, MessageIds, MessageText, NewAccount, NewPet, PetName};
use petstore::store::sqlite::{DatabaseOptions, Options, Sqlite};
use petstore::store::{Store, StoreError};
use rusqlite::Connection;
use testkit::{Database, TIMEOUT, trial};

use crate::fixtures::Executed;
use crate::service::{NOW, OPERATOR};

/// Pages that a batch may add beyond the limit: 512 messages of ten pages each, as many pages of stored responses, and
/// index pages.
const BATCH_PAGES: u64 = 512 * 30;

/// Bytes of a page and its frame header.
const FRAME: u64 = 4_120;

/// Length of the longest message in characters, and in bytes if each character has four.
const TEXT: usize = 10_000;
const TEXT_BYTES: usize = TEXT * 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_reader_does_not_fill_the_disk() {
    let usual = u64::from(DatabaseOptions::default().wal_pages);
    assert!((usual + BATCH_PAGES) * FRAME < 1 << 30, "the usual limit keeps the log below 1 GiB");
    let pages = trial::rounds(6_000);
    let limit = (u64::from(pages) + BATCH_PAGES) * FRAME;
    let folder = tempfile::tempdir().unwrap();
    let (store, account) = open(folder.path(), pages).await;

    let reader = endless_reader(folder.path());
    let (mut acknowledged, mut refused) = (0, 0);
    let log = folder.path().join("petstore.db-wal");
    let length = || log.metadata().unwrap().len();
    // Until the limit, and for twenty more batches.
    while refused < 20 {
        assert!(length() <= limit, "{} bytes exceed the limit of {limit}", length());
        let outcomes = write(&store, account).await;
        acknowledged += outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        refused += usize::from(outcomes.iter().any(Result::is_err));
        for outcome in outcomes {
            assert!(matches!(outcome, Ok(()) | Err(StoreError::Unavailable(_))), "{outcome:?}");
        }
    }
    let length = length();
    assert!(length <= limit, "{length} bytes exceed the limit of {limit}");
    assert!(length > u64::from(pages) / 2 * FRAME, "rejected long before the limit: {length}");
    assert_eq!(store.count_pets().await.unwrap(), 0, "reads succeed");
    store.check().await.expect("the service is ready");

    drop(reader);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(write(&store, account).await.iter().all(Result::is_ok), "writes succeed without the reader");
    acknowledged += CLIENTS;
    let after = log.metadata().unwrap().len();
    assert!(after <= length, "the log starts anew: {after} after {length}");
    store.close().await;
    let count = "SELECT count(*), sum(length(message)) FROM messages";
    let conn = Connection::open(folder.path().join("petstore.db")).unwrap();
    let kept = conn.query_row(count, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).unwrap();
    let expected = (acknowledged as i64, (acknowledged * TEXT) as i64);
    assert_eq!(kept, expected, "the database contains exactly the acknowledged messages");

    // Control: without a limit, the same writes under the same reader exceed it.
    let control = length_without_a_limit(limit).await;
    assert!(control > limit, "the log must exceed the limit");
    trial::measured(&format!(
        "limit {pages} pages: {:.1} MiB under a reader that does not end, then rejected; after its end writes succeed and \
         the log has {:.1} MiB; {acknowledged} acknowledged, 0 lost, none of the rejected there; without a limit \
         the log grows further",
        mebibytes(length),
        mebibytes(after)
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_exports_do_not_delay_writes() {
    let pages = trial::rounds(6_000);
    let folder = tempfile::tempdir().unwrap();
    let (store, account) = open(folder.path(), pages).await;
    // The output exceeds the pipe and the buffers.
    let animals = (0..ANIMALS).map(|number| Ok(new_pet(number)));
    store.import_pets(Box::new(animals)).await.unwrap();
    assert!(write(&store, account).await.iter().all(Result::is_ok));
    let there = message_ids(folder.path());
    let exports = ["pets export", "messages export"].map(|command| Stalled::start(folder.path(), command));

    // The messages exceed the limit of the log twice, and no write is rejected.
    let (mut acknowledged, mut longest) = (CLIENTS, 0);
    let log = folder.path().join("petstore.db-wal");
    while acknowledged * TEXT_BYTES < 2 * pages as usize * 4_096 {
        let outcomes = write(&store, account).await;
        assert!(outcomes.iter().all(Result::is_ok), "{:?}", outcomes.iter().find(|outcome| outcome.is_err()));
        acknowledged += CLIENTS;
        longest = longest.max(log.metadata().unwrap().len());
    }
    let added = store.create_pet(new_pet(ANIMALS), None).await.unwrap().executed().unwrap().id;
    store.check().await.unwrap();

    // Each export contains every row that existed throughout exactly once.
    let [animals, messages] = exports.map(Stalled::finish);
    let expected: Vec<_> = (1..=added).map(|id| id.to_string()).collect();
    assert_eq!(animals, expected, "the last animal was added before the export read its page");
    let ids: HashSet<_> = messages.iter().cloned().collect();
    assert_eq!(ids.len(), messages.len(), "no message is exported twice");
    assert!(there.len() == CLIENTS && there.is_subset(&ids), "{} of {}", there.intersection(&ids).count(), there.len());
    store.close().await;
    trial::measured(&format!(
        "limit {pages} pages: beside two stalled exports, {acknowledged} messages acknowledged, 0 rejected, the log \
         {:.1} MiB at most; read at last, they have each of {ANIMALS} animals and {} messages that were there throughout once",
        mebibytes(longest),
        there.len()
    ));
}

/// Opens a store with an account.
async fn open(folder: &Path, wal_pages: u32) -> (Arc<Store>, AccountId) {
    let database = DatabaseOptions { wal_pages, write_timeout: TIMEOUT, ..DatabaseOptions::default() };
    let options = Options { database, ..Options::new(folder) };
    let store = Arc::new(Store::Sqlite(Sqlite::open(&options).unwrap()));
    let ada = NewAccount::customer(Email::parse("ada@example.com").unwrap(), None);
    let account = store.create_account(ada, OPERATOR).await.unwrap().unwrap();
    (store, account)
}

/// Ids of all messages, as JSON.
fn message_ids(folder: &Path) -> HashSet<String> {
    let conn = Connection::open(folder.join("petstore.db")).unwrap();
    let mut ids = conn.prepare("SELECT '\"msg_' || lower(hex(id)) || '\"' FROM messages").unwrap();
    ids.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Number of animals in a stalled export.
const ANIMALS: i64 = 20_000;

fn new_pet(number: i64) -> NewPet {
    NewPet::new(PetName::parse(format!("animal {number}")).unwrap(), 1)
}

/// An export into a pipe that nobody reads until [`Stalled::finish`].
struct Stalled {
    export: Child,
    out: BufReader<ChildStdout>,
}

impl Stalled {
    /// Starts an export and waits for its first output.
    fn start(folder: &Path, command: &str) -> Self {
        let mut limited = Command::new("timeout");
        limited.arg("600");
        let mut command = Database::folder(folder).petstore_by(limited, command);
        let mut export = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::with_capacity(1, export.stdout.take().unwrap());
        assert!(!out.fill_buf().unwrap().is_empty());
        Self { export, out }
    }

    /// Reads the rest of the export. Returns the ids, as JSON.
    fn finish(mut self) -> Vec<String> {
        let id = |line: String| serde_json::from_str::<serde_json::Value>(&line).unwrap()["id"].to_string();
        let ids = BufReader::new(self.out).lines().map(|line| id(line.unwrap())).collect();
        assert!(self.export.wait().unwrap().success());
        ids
    }
}

/// The number of writes in a full batch.
const CLIENTS: usize = 512;

/// Sends one message of each client at once.
async fn write(store: &Arc<Store>, account: AccountId) -> Vec<Result<(), StoreError>> {
    let clients = (0..CLIENTS).map(|_| {
        let store = Arc::clone(store);
        let text = MessageText::parse("\u{1f98a}".repeat(TEXT)).unwrap();
        tokio::spawn(async move {
            store.create_message(Message::new(&MessageIds::default(), account, text, NOW), None).await.map(|_| ())
        })
    });
    let mut outcomes = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        outcomes.push(client.await.unwrap());
    }
    outcomes
}

/// A reader like one of another process, which keeps its snapshot of the database until it is dropped.
fn endless_reader(folder: &Path) -> Connection {
    let reader = Connection::open(folder.join("petstore.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM meta").unwrap();
    reader
}

/// Writes until the log exceeds `limit`, or until twice as many bytes are written. Returns the length of the log.
async fn length_without_a_limit(limit: u64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let (store, account) = open(folder.path(), u32::MAX).await;
    let _reader = endless_reader(folder.path());
    let log = folder.path().join("petstore.db-wal");
    for _ in 0..2 * limit as usize / (CLIENTS * TEXT_BYTES) {
        write(&store, account).await;
        if log.metadata().unwrap().len() > limit {
            break;
        }
    }
    log.metadata().unwrap().len()
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
