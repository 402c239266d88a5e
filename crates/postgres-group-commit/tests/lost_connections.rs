//! Connections that are lost, refused or weakened by settings, on a real server.

mod guests;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use guests::{FIND, Guest, INSERT, connect, options};
use postgres_group_commit::tokio_postgres::Client;
use postgres_group_commit::{Cluster, Error, Readers, WriteQueue};
use testkit::postgres::{OpenTransaction, database, query, sessions};
use testkit::{PostgresServer, TIMEOUT, soon, until, within};
use tokio::time::sleep;

/// Sessions of a test. Another test may use the same server, but not its database.
const GUESTS: &str = "application_name = 'guests' AND datname = current_database()";

async fn add(guests: &WriteQueue<Guest>, name: &str) -> (i64, String) {
    guests.submit(Guest(name.into())).await.unwrap()
}

async fn find(readers: &Readers, id: i64) -> Option<String> {
    readers.query(FIND, &[&vec![id]]).await.unwrap().first().map(|row| row.get(1))
}

async fn queue(cluster: &Cluster) -> WriteQueue<Guest> {
    cluster.write_queue("guests", Arc::new(())).await.unwrap()
}

async fn readers(cluster: &Cluster, count: usize) -> Arc<Readers> {
    cluster.readers("reads", count, &[FIND], Arc::new(())).await.unwrap()
}

/// Returns the URL of a new database and of the role that owns it, which is no superuser.
fn database_of_ada(server: &PostgresServer) -> String {
    let url = server.database();
    let name = url.rsplit('/').next().unwrap();
    server.sql("postgres", &format!("CREATE ROLE ada LOGIN; ALTER DATABASE {name} OWNER TO ada"));
    url.replace("petstore@", "ada@")
}

#[tokio::test]
async fn reads_are_retried_when_their_connection_is_lost() {
    let url = database();
    let cluster = connect(&options(&url)).await;
    let (id, _) = add(&queue(&cluster).await, "Ada").await;
    let readers = readers(&cluster, 2).await;
    for _ in 0..5 {
        query(&url, &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {GUESTS}"));
        assert_eq!(find(&readers, id).await.unwrap(), "Ada");
    }
}

#[tokio::test]
async fn failed_read_keeps_its_connection() {
    const CONNECTION: &str = "SELECT pg_backend_pid()";
    const FAILS: &str = "SELECT 1 / (pg_backend_pid() - pg_backend_pid())";
    let cluster = connect(&options(&database())).await;
    let readers = cluster.readers("reads", 1, &[CONNECTION, FAILS], Arc::new(())).await.unwrap();
    let connection = async || readers.query(CONNECTION, &[]).await.unwrap()[0].get::<_, i32>(0);
    let before = connection().await;
    let failed = readers.query(FAILS, &[]).await;
    assert!(matches!(failed, Err(Error::Failed(..))), "{failed:?}");
    assert_eq!(connection().await, before);
}

/// A read is sent late because there was no connection. Others share the one that it gets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_that_is_sent_late_keeps_its_connection() {
    const CONNECTION: &str = "SELECT pg_backend_pid()";
    const SLOW: &str = "SELECT pg_sleep(2)::text";
    const LIMIT: Duration = Duration::from_secs(3);
    let server = PostgresServer::start();
    let url = server.database();
    let mut options = options(&url);
    options.url.timeout = LIMIT;
    let cluster = connect(&options).await;
    let readers = cluster.readers("reads", 1, &[CONNECTION, SLOW], Arc::new(())).await.unwrap();
    until(async || {
        let Ok(before) = readers.query(CONNECTION, &[]).await else { return false };
        let stopped = Stopped::listener(&server);
        // It may have ended already, after a pause of this process.
        _ = Command::new("kill").arg(before[0].get::<_, i32>(0).to_string()).status();
        let resume = async {
            sleep(LIMIT * 3 / 4).await;
            drop(stopped);
        };
        let (read, ()) = tokio::join!(readers.query(SLOW, &[]), resume);
        let used = query(&url, &format!("SELECT pid FROM pg_stat_activity WHERE {GUESTS} AND query = '{SLOW}'"));
        // It is empty if the connection came too late.
        let after = readers.query(CONNECTION, &[]).await;
        read.is_err() && after.is_ok_and(|after| used == after[0].get::<_, i32>(0).to_string())
    })
    .await;
}

/// New connections hang, for instance because the server's machine has too little memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_use_the_connections_that_are_left() {
    let server = PostgresServer::start();
    let url = server.database();
    let cluster = connect(&options(&url)).await;
    let readers = readers(&cluster, 2).await;
    // While the table is locked, each connection for reads waits.
    let blocker = OpenTransaction::begin(&url, "LOCK TABLE guests");
    let reads = [1, 2].map(|id| {
        let readers = Arc::clone(&readers);
        tokio::spawn(async move { find(&readers, id).await })
    });
    let waiting = "wait_event_type = 'Lock'";
    within(TIMEOUT, "waiting for the table", || sessions(&url, waiting) == 2);
    let reader = query(&url, &format!("SELECT min(pid) FROM pg_stat_activity WHERE {waiting}"));
    blocker.release();
    _ = try_join_all(reads).await.unwrap();
    let _stopped = Stopped::listener(&server);

    signal("TERM", &reader);
    let is_lost = || cluster.connections().contains(&("reads", false));
    within(TIMEOUT, "losing a connection", is_lost);

    for _ in 0..4 {
        assert_eq!(find(&readers, 1).await, None);
    }
    assert!(is_lost(), "it was not replaced meanwhile");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_wait_for_the_next_connection() {
    let server = PostgresServer::start();
    let url = server.database();
    let cluster = connect(&options(&url)).await;
    let guests = queue(&cluster).await;
    let connections = query(&url, &format!("SELECT pid FROM pg_stat_activity WHERE {GUESTS}"));
    let stopped = Stopped::listener(&server);
    connections.lines().for_each(|connection| signal("TERM", connection));
    within(TIMEOUT, "losing the connections", || cluster.connections() == [("guests", false)]);
    tokio::join!(add(&guests, "Ada"), async { drop(stopped) });
}

/// The first connection that is open again lets the others try at once, and operations wait for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_succeed_once_the_cluster_is_ready_again() {
    let server = PostgresServer::start();
    let cluster = connect(&options(&server.database())).await;
    let (guests, readers) = (queue(&cluster).await, readers(&cluster, 2).await);
    for _ in 0..5 {
        server.control(&["stop", "-m", "immediate"]);
        // Then half a second passes between two attempts.
        tokio::time::sleep(Duration::from_secs(2)).await;
        server.control(&["start"]);
        until(async || cluster.check(TIMEOUT).await.is_ok()).await;
        let (id, _) = add(&guests, "Ada").await;
        assert_eq!(find(&readers, id).await.unwrap(), "Ada");
    }
}

/// A server that is starting or at its limit refuses some of the connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_is_not_ready_until_each_purpose_has_its_connection() {
    let server = PostgresServer::start();
    let url = database_of_ada(&server);
    let cluster = connect(&options(&url)).await;
    let (guests, _readers) = (queue(&cluster).await, readers(&cluster, 1).await);
    let single = cluster.single_writes("single", &[INSERT]).await.unwrap();
    let check = async || cluster.check(Duration::from_secs(1)).await;
    until(async || check().await.is_ok()).await;
    server.sql("postgres", "ALTER ROLE ada CONNECTION LIMIT 2");

    server.sql("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ada'");

    let connected = || cluster.connections().iter().filter(|(_, is_up)| *is_up).count();
    // There may be as few for a moment before all have noticed that they were ended.
    until(async || connected() == 2 && check().await.is_err() && connected() == 2).await;
    server.sql("postgres", "ALTER ROLE ada CONNECTION LIMIT -1");
    until(async || check().await.is_ok()).await;
    add(&guests, "Ada").await;
    single.write(INSERT, &[&["Grace"].as_slice()]).await.unwrap();
}

/// As after its password was changed. Open connections stay.
#[tokio::test]
async fn transaction_of_a_role_without_login_is_unavailable() {
    let server = PostgresServer::start();
    let cluster = connect(&options(&database_of_ada(&server))).await;
    let guests = queue(&cluster).await;
    server.sql("postgres", "ALTER ROLE ada NOLOGIN");

    let transaction = cluster.transaction(async |_| Ok::<_, Error>(())).await;

    assert!(matches!(transaction, Err(Error::Unavailable(_))), "{transaction:?}");
    add(&guests, "Ada").await;
    cluster.check(TIMEOUT).await.unwrap();
}

#[tokio::test]
async fn server_settings_cannot_make_commits_less_durable() {
    let server = PostgresServer::start();
    let url = server.database();
    connect(&options(&url)).await.close();
    name_guests_after_setting(&url, "synchronous_commit");
    let reopened = async || Cluster::connect(&options(&url)).await.unwrap().0;
    let name = url.rsplit('/').next().unwrap();
    for (chosen, used) in [
        ("off", "on"),
        ("local", "on"),
        ("on", "on"),
        ("remote_write", "remote_write"),
        ("remote_apply", "remote_apply"),
    ] {
        query(&url, &format!("ALTER DATABASE {name} SET synchronous_commit = {chosen}"));
        let cluster = reopened().await;
        assert_eq!(add(&queue(&cluster).await, "").await.1, used, "set to {chosen}");
        cluster.close();
    }

    query(&url, &format!("ALTER DATABASE {name} RESET synchronous_commit"));
    let cluster = reopened().await;
    let guests = queue(&cluster).await;
    server.set("synchronous_commit", "off");
    until(async || query(&url, "SHOW synchronous_commit") == "off").await;
    for _ in 0..20 {
        assert_eq!(add(&guests, "").await.1, "on", "set to off while the cluster is open");
    }
}

#[tokio::test]
async fn server_settings_cannot_change_the_isolation_level() {
    let url = database();
    connect(&options(&url)).await.close();
    name_guests_after_setting(&url, "transaction_isolation");
    let name = url.rsplit('/').next().unwrap();
    query(&url, &format!("ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'"));
    let (cluster, _) = Cluster::connect(&options(&url)).await.unwrap();
    add(&queue(&cluster).await, "").await;
    let add = async |client: &Client| Ok(client.execute(INSERT, &[&["Ada"].as_slice()]).await?);
    cluster.transaction::<_, Error>(add).await.unwrap();
    assert_eq!(query(&url, "SELECT name FROM guests"), "read committed\nread committed");
}

#[tokio::test]
async fn server_settings_cannot_end_a_long_statement() {
    let url = database();
    let name = url.rsplit('/').next().unwrap();
    query(&url, &format!("ALTER DATABASE {name} SET statement_timeout = 500"));
    let connection = connect(&options(&url)).await.connection().await.unwrap();
    connection.client.batch_execute("SELECT pg_sleep(0.7)").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_whose_wait_for_the_standby_is_cancelled_is_unknown() {
    let server = PostgresServer::start();
    // Backslashes in strings mean something else then, also in the statement that counts the standbys.
    server.set("standard_conforming_strings", "off");
    let url = server.database();
    let cluster = connect(&options(&url)).await;
    let guests = queue(&cluster).await;
    server.set("synchronous_standby_names", "nobody");
    // The server's processes notice the setting one by one.
    let writing = tokio::spawn(async move {
        loop {
            if let Err(error) = guests.submit(Guest("Ada".into())).await {
                break error;
            }
        }
    });

    // PostgreSQL commits the write, and reports success.
    until(async || server.cancel_waits_for_standbys() > 0).await;

    let error = soon(writing).await.unwrap();
    assert!(matches!(&error, Error::Unknown(why) if why.contains("sent a warning")), "{error}");
}

/// Each write that waits occupies a connection of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_rejected_while_others_wait_for_the_standby() {
    let server = PostgresServer::start();
    let url = server.database();
    let mut options = options(&url);
    options.url.timeout = Duration::from_secs(1);
    let cluster = connect(&options).await;
    let guests = queue(&cluster).await;
    server.set("synchronous_standby_names", "nobody");
    let rejected = |error| matches!(error, Error::Unavailable(why) if why.starts_with("earlier commits still wait"));
    until(async || guests.submit(Guest("Ada".into())).await.is_err_and(rejected)).await;
    let written = || query(&url, "SELECT count(*) FROM guests");
    let before = written();
    assert!(matches!(guests.submit(Guest("Grace".into())).await, Err(Error::Unavailable(_))));
    assert_eq!(written(), before);
    server.set("synchronous_standby_names", "");
    until(async || guests.submit(Guest("Ben".into())).await.is_ok()).await;
}

#[tokio::test]
async fn warning_of_a_trigger_leaves_a_commit_known() {
    let url = database();
    let cluster = connect(&options(&url)).await;
    let function = "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE WARNING 'a guest'; RETURN NEW; END $$";
    query(
        &url,
        &format!("{function}; CREATE TRIGGER warn BEFORE INSERT ON guests FOR EACH ROW EXECUTE FUNCTION warn()"),
    );
    let guests = queue(&cluster).await;
    for _ in 0..2 {
        add(&guests, "Ada").await;
    }
}

/// Creates a trigger that names each new guest after the value of a setting in its transaction.
fn name_guests_after_setting(url: &str, setting: &str) {
    let function = format!(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN NEW.name = current_setting('{setting}'); RETURN NEW; END $$"
    );
    query(
        url,
        &format!("{function}; CREATE TRIGGER note BEFORE INSERT ON guests FOR EACH ROW EXECUTE FUNCTION note()"),
    );
}

/// A process that is stopped until this is dropped.
struct Stopped(String);

impl Stopped {
    /// The process that accepts connections.
    fn listener(server: &PostgresServer) -> Self {
        let file = std::fs::read_to_string(server.folder.join("data/postmaster.pid")).unwrap();
        let id = file.lines().next().unwrap().to_owned();
        signal("STOP", &id);
        Self(id)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal("CONT", &self.0);
    }
}

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), process]).status().unwrap().success());
}
