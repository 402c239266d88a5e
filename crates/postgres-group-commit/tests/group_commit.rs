//! Batches, their answers, and what remains after failures, on a real server.

#[path = "../examples/postgres_guest_book.rs"]
#[expect(dead_code, reason = "its `main` is for people")]
mod guest_book;
mod guests;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use guests::{FIND, Guest, INSERT, connect, options};
use parking_lot::Mutex;
use postgres_group_commit::tokio_postgres::Error as PostgresError;
use postgres_group_commit::tokio_postgres::error::SqlState;
use postgres_group_commit::tokio_postgres::types::ToSql;
use postgres_group_commit::{Error, Observer, Options, Pending, PreparedConnection, Read, ReadBatcher, Readers, Write};
use testkit::{PostgresServer, Request, postgres, soon, until};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The id of a guest to find.
struct Find(i64);

impl Read for Find {
    type Answer = Option<String>;

    async fn run(readers: &Readers, batch: Vec<Pending<Self>>) {
        let ids: Vec<_> = batch.iter().map(|pending| pending.read.0).collect();
        let found = readers.query(FIND, &[&ids]).await;
        for Pending { read, reply } in batch {
            let name = |rows: &Vec<postgres_group_commit::tokio_postgres::Row>| {
                rows.iter().find(|row| row.get::<_, i64>(0) == read.0).map(|row| row.get(1))
            };
            _ = reply.send(found.as_ref().map(name).map_err(Clone::clone));
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    batches: Mutex<Vec<usize>>,
    queries: AtomicUsize,
    refused: AtomicUsize,
}

impl Observer for Counts {
    fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn batch(&self, writes: usize, _took: Duration) {
        self.batches.lock().push(writes);
    }

    fn query(&self, _took: Duration) {
        self.queries.fetch_add(1, Ordering::Relaxed);
    }
}

fn name(number: usize) -> String {
    format!("guest {number}")
}

#[tokio::test]
async fn waiting_writes_are_one_batch_and_waiting_reads_one_query() {
    let url = postgres::database();
    let (cluster, counts) = (connect(&options(&url)).await, Arc::<Counts>::default());
    let guests = cluster.write_queue("guests", Arc::clone(&counts) as _).await.unwrap();
    let readers = cluster.readers("reads", 1, &[FIND], Arc::clone(&counts) as _).await.unwrap();
    let finds = ReadBatcher::new(&readers);

    // On one thread, all are queued before the first batch begins.
    let mut adding = Box::pin(join_all((0..200).map(|number| guests.submit(Guest(name(number))))));
    assert!((&mut adding).now_or_never().is_none());
    assert_eq!(guests.waiting(), 200);
    let added: Vec<_> = adding.await.into_iter().map(Result::unwrap).collect();
    assert_eq!(guests.waiting(), 0);
    assert!(added.iter().enumerate().all(|(number, (_, stored))| *stored == name(number)), "each gets its own outcome");
    assert_eq!(*counts.batches.lock(), [200]);

    let found = join_all(added.iter().map(|(id, _)| finds.read(Find(*id)))).await;
    assert!(found.into_iter().enumerate().all(|(number, found)| found.unwrap() == Some(name(number))));
    assert_eq!(counts.queries.load(Ordering::Relaxed), 1);
    assert_eq!(finds.read(Find(0)).await.unwrap(), None);

    let nobody: [&(dyn ToSql + Sync); 1] = [&[0_i64].as_slice()];
    let mut query = Box::pin(readers.query(FIND, &nobody));
    assert!((&mut query).now_or_never().is_none());
    assert_eq!(readers.waiting(), 1);
    query.await.unwrap();
    assert_eq!(readers.waiting(), 0);

    assert!(postgres::sessions(&url, "application_name = 'guests'") >= 2, "the sessions have their name");
    let connections = [("guests", true), ("reads", true)];
    assert_eq!(cluster.connections(), connections);
    cluster.check(Duration::from_secs(30)).await.unwrap();
}

#[tokio::test]
async fn full_queue_rejects_writes_and_commits_the_rest_when_closed() {
    let options = Options { queue: 2, ..options(&postgres::database()) };
    let (cluster, counts) = (connect(&options).await, Arc::<Counts>::default());
    let guests = cluster.write_queue::<Guest>("guests", Arc::clone(&counts) as _).await.unwrap();
    let submit = || join_all((0..3).map(|number| guests.submit(Guest(name(number)))));

    let outcomes = submit().await;
    assert!(matches!(outcomes[..], [Ok(_), Ok(_), Err(Error::Unavailable(_))]), "{outcomes:?}");
    assert_eq!(counts.refused.load(Ordering::Relaxed), 1);

    let (outcomes, ()) = tokio::join!(submit(), guests.close());
    assert!(matches!(outcomes[..], [Ok(_), Ok(_), Err(Error::Unavailable(_))]), "{outcomes:?}");
    let outcomes = submit().await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(Error::Unavailable(_)))), "{outcomes:?}");

    cluster.close();
    assert!(matches!(cluster.check(Duration::from_secs(30)).await, Err(Error::Unavailable(_))));
    assert!(matches!(cluster.connection().await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn transaction_is_committed_whole_or_not_at_all() {
    let url = postgres::database();
    let cluster = connect(&options(&url)).await;
    let add = async |divisor: i32| {
        cluster
            .transaction(async |client| {
                client.execute("INSERT INTO guests (name) VALUES ('Ada')", &[]).await?;
                client.query_one("SELECT 1 / $1::int", &[&divisor]).await?;
                Ok(())
            })
            .await
    };

    let failed = add(0).await;
    assert!(
        matches!(&failed, Err(Error::Failed(why, Some(SqlState::DIVISION_BY_ZERO))) if why == "division by zero (SQLSTATE 22012)"),
        "{failed:?}"
    );
    add(1).await.unwrap();

    assert_eq!(postgres::query(&url, "SELECT count(*) FROM guests"), "1");
}

#[tokio::test]
async fn transaction_is_not_applied_if_it_ends_before_its_commit() {
    let url = postgres::database();
    let mut impatient = options(&url);
    impatient.url.timeout = Duration::from_secs(2);
    let cluster = connect(&impatient).await;
    let steps = ["SELECT pg_terminate_backend(pg_backend_pid())", "SELECT pg_sleep(60)"];
    for step in steps {
        let add = format!("INSERT INTO guests (name) VALUES ('Ada'); {step}");
        let failed = cluster.transaction(async |client| Ok(client.batch_execute(&add).await?)).await;
        assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    }
    assert_eq!(postgres::query(&url, "SELECT count(*) FROM guests"), "0");
}

/// A defect of a program, after it has added a guest.
enum Defect {
    NoOutcome,
    WrongType,
    Panic,
    PanicOfBytes,
}

impl Write for Defect {
    type Output = i64;

    fn statements() -> Vec<&'static str> {
        vec![INSERT]
    }

    fn bytes(&self) -> usize {
        assert!(!matches!(self, Self::PanicOfBytes), "a defect");
        3
    }

    async fn run(prepared: &PreparedConnection, defects: Vec<Self>) -> Result<Vec<i64>, PostgresError> {
        if matches!(defects[0], Self::Panic) {
            prepared.connection.client.batch_execute("BEGIN").await?;
        }
        let rows = prepared.query(INSERT, &[&["Ada"].as_slice()]).await?;
        match defects[0] {
            Self::NoOutcome => Ok(Vec::new()),
            Self::WrongType => rows[0].try_get("name").map(|id| vec![id]),
            Self::Panic | Self::PanicOfBytes => panic!("a defect"),
        }
    }
}

#[tokio::test]
async fn write_without_an_outcome_is_unknown_and_stops_no_other() {
    let url = postgres::database();
    let cluster = connect(&options(&url)).await;
    let writes = cluster.write_queue("defects", Arc::new(())).await.unwrap();
    assert!(AssertUnwindSafe(writes.submit(Defect::PanicOfBytes)).catch_unwind().await.is_err());
    for defect in [Defect::NoOutcome, Defect::Panic, Defect::WrongType] {
        let failed = writes.submit(defect).await;
        assert!(matches!(failed, Err(Error::Unknown(_))), "{failed:?}");
    }
    assert_eq!(postgres::query(&url, "SELECT count(*) FROM guests"), "2", "the transaction of the panic is undone");
    cluster.check(Duration::from_secs(30)).await.unwrap();
}

/// A read whose batch panics if it is for `0`.
struct Fragile(i64);

impl Read for Fragile {
    type Answer = i64;

    async fn run(_: &Readers, batch: Vec<Pending<Self>>) {
        for Pending { read, reply } in batch {
            assert_ne!(read.0, 0, "a defect");
            _ = reply.send(Ok(read.0));
        }
    }
}

#[tokio::test]
async fn panic_of_a_read_stops_no_other() {
    let cluster = connect(&options(&postgres::database())).await;
    let reads = ReadBatcher::new(&cluster.readers("reads", 1, &[FIND], Arc::new(())).await.unwrap());
    assert!(matches!(reads.read(Fragile(0)).await, Err(Error::Failed(..))));
    assert_eq!(reads.read(Fragile(1)).await.unwrap(), 1);
}

#[tokio::test]
async fn statements_are_prepared_again_after_their_table_has_changed() {
    let url = postgres::database();
    let cluster = connect(&options(&url)).await;
    let guests = cluster.write_queue("guests", Arc::new(())).await.unwrap();
    let readers = cluster.readers("reads", 2, &[FIND], Arc::new(())).await.unwrap();
    postgres::query(&url, "ALTER TABLE guests ALTER name TYPE varchar(100)");

    let outdated = guests.submit(Guest("Ada".into())).await;

    assert!(matches!(outdated, Err(Error::Unavailable(_))), "{outdated:?}");
    until(async || guests.submit(Guest("Ada".into())).await.is_ok()).await;
    assert_eq!(readers.query(FIND, &[&vec![1_i64]]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn one_connection_is_enough_for_a_command() {
    let url = postgres::database();
    let cluster = connect(&Options { one_connection: true, ..options(&url) }).await;
    let guests = cluster.write_queue("guests", Arc::new(())).await.unwrap();
    let single = cluster.single_writes("single", &[INSERT]).await.unwrap();
    let readers = cluster.readers("reads", 2, &[FIND], Arc::new(())).await.unwrap();

    let (id, _) = guests.submit(Guest("Ada".into())).await.unwrap();
    single.write(INSERT, &[&["Grace"].as_slice()]).await.unwrap();
    let found = readers.query(FIND, &[&vec![id, id + 1]]).await.unwrap();

    assert_eq!(found.iter().map(|row| row.get(1)).collect::<Vec<&str>>(), ["Ada", "Grace"]);
    cluster.check(Duration::from_secs(30)).await.unwrap();
    let supervised = "application_name = 'guests' AND (query LIKE 'SELECT id, name%' OR query LIKE 'SELECT CASE%')";
    assert_eq!(postgres::sessions(&url, supervised), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_outlive_a_restart_under_load() {
    let server = Arc::new(PostgresServer::start());
    let url = server.database();
    let cluster = connect(&options(&url)).await;
    let guests = Arc::new(cluster.write_queue::<Guest>("guests", Arc::new(())).await.unwrap());
    let (next, is_done) = (Arc::<AtomicUsize>::default(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let outcomes = Arc::<Mutex<Vec<(String, Result<(i64, String), Error>)>>>::default();
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (guests, next, is_done, outcomes) =
                (Arc::clone(&guests), Arc::clone(&next), Arc::clone(&is_done), Arc::clone(&outcomes));
            tokio::spawn(async move {
                while !is_done.load(Ordering::Relaxed) {
                    let name = name(next.fetch_add(1, Ordering::Relaxed));
                    let outcome = guests.submit(Guest(name.clone())).await;
                    if outcome.is_err() {
                        // While no server is there, it fails at once.
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    outcomes.lock().push((name, outcome));
                }
            })
        })
        .collect();
    let acknowledged = || outcomes.lock().iter().filter(|(_, outcome)| outcome.is_ok()).count();

    until(async || acknowledged() >= 200).await;
    let restarted = Arc::clone(&server);
    tokio::task::spawn_blocking(move || restarted.control(&["restart", "-m", "immediate"])).await.unwrap();
    let before = acknowledged();
    until(async || acknowledged() >= before + 200).await;
    is_done.store(true, Ordering::Relaxed);
    for client in clients {
        soon(client).await.unwrap();
    }

    let stored = postgres::query(&url, "SELECT name FROM guests");
    let rows: Vec<_> = stored.lines().collect();
    let stored: BTreeSet<_> = rows.iter().copied().collect();
    assert_eq!(stored.len(), rows.len(), "no write is repeated");
    let outcomes = outcomes.lock();
    for (name, outcome) in outcomes.iter() {
        match outcome {
            Ok((_, answer)) => assert!(answer == name && stored.contains(&**name), "{name} is lost"),
            Err(Error::Unknown(_)) => {}
            Err(Error::Unavailable(why)) => assert!(!stored.contains(&**name), "{name} was applied after: {why}"),
            Err(Error::Failed(why, _)) => panic!("{name}: {why}"),
        }
    }
    assert!(outcomes.iter().any(|(_, outcome)| outcome.is_err()), "the restart interrupted a batch");
}

#[tokio::test]
async fn example_keeps_a_guest_book() {
    let url = postgres::database();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let client = async {
        for (number, name) in [("1", "Ada"), ("already there", "Ada"), ("3", "Grace")] {
            let added = Request::new(address, "POST", "/").body(name).send().await;
            assert_eq!((added.status(), &*added.body), (200, number));
        }
        let listed = Request::new(address, "GET", "/").send().await;
        assert_eq!(listed.body, "Grace, Ada");
        drop(stop);
    };
    let (served, ()) = tokio::join!(guest_book::run(listener, &url, async { _ = stopped.await }), client);
    served.unwrap();
}
