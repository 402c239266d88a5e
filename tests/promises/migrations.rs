//! Promise 30: migrations, whoever starts them and whatever happens in between.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use testkit::postgres::{query, try_query};
use testkit::{Database, PostgresServer, Server, trial, within};

#[test]
fn concurrent_starts_migrate_once() {
    let url = PostgresServer::shared().database();
    let database = Database::url(&url);
    let processes: Vec<_> = (0..8).map(|_| database.serve()).collect();
    let starting: Vec<_> = (0..8).map(|_| database.petstore("migrate").spawn().unwrap()).collect();
    for mut process in starting {
        assert!(process.wait().unwrap().success());
    }
    drop(processes);
    let applied = query(&url, "SELECT count(*), count(DISTINCT version) FROM refinery_schema_history");
    assert_eq!(applied, format!("{0}|{0}", migrations()));
}

#[test]
fn killed_migration_leaves_a_usable_database() {
    kill_at_moments(&|| New::Url(PostgresServer::shared().database()));
}

#[test]
fn killed_migration_leaves_a_usable_folder() {
    kill_at_moments(&|| New::Folder(tempfile::tempdir().unwrap()));
}

/// A database that no program has opened yet.
enum New {
    Folder(tempfile::TempDir),
    Url(String),
}

impl New {
    fn database(&self) -> Database {
        match self {
            Self::Folder(folder) => Database::folder(folder.path()),
            Self::Url(url) => Database::url(url),
        }
    }

    /// How many steps it has been through.
    fn steps(&self) -> usize {
        let count = "SELECT count(*) FROM refinery_schema_history";
        match self {
            Self::Folder(folder) => {
                let file = Connection::open(folder.path().join("petstore.db")).unwrap();
                file.query_row(count, [], |row| row.get::<_, i64>(0)).map_or(0, |steps| steps as usize)
            }
            Self::Url(url) => try_query(url, count).map_or(0, |steps| steps.parse().unwrap()),
        }
    }

    fn remove(self) {
        match self {
            Self::Folder(folder) => drop(folder),
            Self::Url(url) => PostgresServer::shared().remove(&url),
        }
    }
}

fn kill_at_moments(new: &dyn Fn() -> New) {
    let moments = trial::rounds(10);
    let migrate_and_kill_after = |moment| migrate_and_kill_after(new(), moment);
    let whole = (0..3).map(|_| migrate_and_kill_after(Duration::from_mins(1)).1).max().unwrap();
    let (mut before, mut within, mut after) = (0, 0, 0);
    for moment in 1..=moments {
        // Up to a quarter later, since it does not always take as long.
        let (left, _) = migrate_and_kill_after(whole * 5 * moment / moments / 4);
        match left {
            0 => before += 1,
            left if left < migrations() => within += 1,
            _ => after += 1,
        }
        if moment % 20 == 0 {
            println!(
                "moment {moment} of {moments}: {before} kills before the first step's end, {within} before the last's"
            );
        }
    }
    // The control: kills hit before and after the migrations, or they would prove little.
    assert!(before + within > 0 && within + after > 0, "{before} kills before, {within} within, {after} after");
    trial::measured(&format!(
        "{moments} kills at moments spread over {} ms, {before} of them before the first step's end, {within} more before \
         the last's: each time it opens",
        (whole * 5 / 4).as_millis()
    ));
}

/// How many steps there are after the kill, and how long the program ran. The database opens afterwards.
fn migrate_and_kill_after(new: New, moment: Duration) -> (usize, Duration) {
    let database = new.database();
    let began = Instant::now();
    let mut migrating = database.petstore("migrate").stderr(Stdio::null()).spawn().unwrap();
    while began.elapsed() < moment && migrating.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_micros(100));
    }
    let took = began.elapsed();
    let _ = migrating.kill();
    migrating.wait().unwrap();
    let steps = new.steps();
    opens(&database);
    new.remove();
    (steps, took)
}

#[test]
fn migration_killed_within_a_step_leaves_no_trace() {
    let (rounds, steps) = (trial::rounds(1), steps());
    for _ in 0..rounds {
        for (before, step) in steps.iter().enumerate() {
            kill_within(before, step);
        }
    }
    trial::measured(&format!("{rounds} kills within each of {} steps, nothing of the step left", steps.len()));
}

/// What a migration makes last, which is where it can be held up.
enum Step {
    Table(String),
    /// A table and its new column, in a step that creates no table. Dropping the column restores the state before the
    /// step.
    Column(String, String),
    /// A new index and its table.
    Index(String, String),
}

fn steps() -> Vec<Step> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let word = |text: &str| text.split([' ', '(']).next().unwrap().to_owned();
    let step = |file| {
        let sql = std::fs::read_to_string(file).unwrap();
        if let Some((_, after)) = sql.rsplit_once("CREATE TABLE ") {
            return Step::Table(word(after));
        }
        if let Some((_, after)) = sql.rsplit_once("CREATE INDEX IF NOT EXISTS ") {
            let (index, after) = after.split_once(" ON ").expect("an index is on a table");
            return Step::Index(index.to_owned(), word(after));
        }
        let (_, after) = sql.rsplit_once("ALTER TABLE ").expect("any other step needs a hold of its own");
        let (table, after) = after.split_once(" ADD COLUMN ").expect("any other step needs a hold of its own");
        Step::Column(table.to_owned(), word(after))
    };
    files.iter().map(step).collect()
}

impl Step {
    /// Brings an empty database to where the step can be held up.
    fn prepare(&self, url: &str, database: &Database, before: usize) {
        let undo = match self {
            Self::Table(_) => return,
            // Dropping the column drops its indexes.
            Self::Column(table, column) => format!("ALTER TABLE {table} DROP COLUMN {column}"),
            Self::Index(index, _) => format!("DROP INDEX {index}"),
        };
        migrates(database);
        query(url, &undo);
        query(url, &format!("DELETE FROM refinery_schema_history WHERE version > {before}"));
    }

    /// What somebody else does, until whose end the step stops there.
    fn hold(&self) -> String {
        match self {
            Self::Table(table) => format!("CREATE TABLE {table} ()"),
            Self::Column(table, _) => format!("LOCK TABLE {table} IN ACCESS SHARE MODE"),
            Self::Index(_, table) => format!("LOCK TABLE {table} IN ROW EXCLUSIVE MODE"),
        }
    }

    /// Asks whether nothing of it is there.
    fn is_undone(&self) -> String {
        match self {
            Self::Table(name) | Self::Index(name, _) => format!("SELECT to_regclass('{name}') IS NULL"),
            Self::Column(table, column) => format!(
                "SELECT count(*) = 0 FROM information_schema.columns
                 WHERE table_name = '{table}' AND column_name = '{column}'"
            ),
        }
    }
}

fn kill_within(before: usize, step: &Step) {
    let url = PostgresServer::shared().database();
    let database = Database::url(&url);
    step.prepare(&url, &database, before);
    let blocker = thread::spawn({
        let sql = format!("BEGIN; {}; SELECT pg_sleep(60)", step.hold());
        let url = url.clone();
        move || try_query(&url, &sql)
    });
    let activity =
        |what: &str| format!("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {what}");
    let limit = Duration::from_secs(20);
    within(limit, "blocking", || query(&url, &activity("wait_event = 'PgSleep'")) == "1");
    let mut migrating = database.petstore("migrate").stderr(Stdio::null()).spawn().unwrap();
    within(limit, "reaching the table", || query(&url, &activity("wait_event_type = 'Lock'")) == "1");
    migrating.kill().unwrap();
    migrating.wait().unwrap();

    query(
        &url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()",
    );
    assert!(blocker.join().unwrap().is_err());
    within(limit, "ending", || query(&url, &activity("wait_event_type = 'Lock'")) == "0");
    // The steps before it were whole, and stay.
    let left = query(&url, "SELECT count(*) FROM refinery_schema_history");
    assert_eq!(left, before.to_string());
    assert_eq!(query(&url, &step.is_undone()), "t");
    opens(&database);
    assert_eq!(query(&url, "SELECT count(*) FROM refinery_schema_history"), migrations().to_string());
    PostgresServer::shared().remove(&url);
}

/// How many there are.
fn migrations() -> usize {
    std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres")).unwrap().count()
}

fn opens(database: &Database) {
    migrates(database);
    database.make_key();
}

fn migrates(database: &Database) {
    let migrated = database.petstore("migrate").output().unwrap();
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
}

#[test]
fn program_works_with_newer_schemas_that_allow_it() {
    let rounds = trial::rounds(1);
    let mut answered = 0;
    for round in 1..=rounds {
        answered += works_beside_a_newer_schema();
        println!("round {round} of {rounds}: {answered} answers");
    }
    trial::measured(&format!(
        "{rounds} databases brought to a later schema beside a process that serves: {answered} requests meanwhile, none failed"
    ));
}

/// How many requests were answered while the schema grew.
fn works_beside_a_newer_schema() -> usize {
    let url = PostgresServer::shared().database();
    let database = Database::url(&url);
    let key = database.make_key();
    let service = database.serve();
    let done = AtomicBool::new(false);
    let answered = thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| serve_until(&done, &service, &key))).collect();
        thread::sleep(Duration::from_millis(100));
        // What a later version's first step may do, as its process does it: whole, while the process of before serves.
        query(
            &url,
            "BEGIN;
             ALTER TABLE pets ADD COLUMN later bigint;
             ALTER TABLE messages ADD COLUMN later text DEFAULT 'none';
             CREATE TABLE later (id bigint PRIMARY KEY);
             CREATE INDEX later_pets ON pets (category_id);
             INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
             VALUES (999, 'later', '2030-01-01T00:00:00Z', '1');
             COMMIT",
        );
        thread::sleep(Duration::from_millis(100));
        done.store(true, Ordering::SeqCst);
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    drop(service);
    // One that starts beside the newer schema serves as well.
    assert_eq!(database.serve().create_pet(&key, "Rex").status, 201);

    // The control: a schema that says no is not worked with.
    query(&url, "UPDATE meta SET value = '998' WHERE key = 'oldest_schema'");
    let refused = database.petstore("migrate").output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("schema version 999") && told.contains("use a newer petstore"), "{told}");
    PostgresServer::shared().remove(&url);
    answered
}

/// Asks for one thing after the other, all of which must be answered.
fn serve_until(done: &AtomicBool, service: &Server, key: &str) -> usize {
    let mut answered = 0;
    while !done.load(Ordering::SeqCst) {
        assert_eq!(service.create_pet(key, "Rex").status, 201);
        assert_eq!(service.get("/v1/pets", key).status, 200);
        assert_eq!(service.get("/v1/pets/1", key).status, 200);
        assert_eq!(service.send_message(key, "hello").status, 202);
        answered += 4;
    }
    answered
}
