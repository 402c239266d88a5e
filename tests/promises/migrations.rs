//! Promise 30: migrations are atomic, run once when processes start concurrently, and keep older processes working.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use testkit::postgres::{self, OpenTransaction, query, sessions};
use testkit::{Database, Server, Stop, TIMEOUT, trial, within};

#[test]
fn concurrent_starts_migrate_once() {
    let database = Database::postgres();
    let processes: Vec<_> = (0..8).map(|_| database.serve()).collect();
    let starting: Vec<_> = (0..8).map(|_| database.petstore("migrate").spawn().unwrap()).collect();
    for mut process in starting {
        assert!(process.wait().unwrap().success());
    }
    drop(processes);
    let applied = database.sql("SELECT count(*), count(DISTINCT version) FROM refinery_schema_history");
    assert_eq!(applied, format!("{0}|{0}", migrations()));
}

#[test]
fn killed_migration_leaves_a_usable_database() {
    kill_at_moments(Database::postgres);
}

#[test]
fn killed_migration_leaves_a_usable_folder() {
    kill_at_moments(Database::temporary);
}

/// Kills migrations of new databases at moments spread over their time.
fn kill_at_moments(new: fn() -> Database) {
    let moments = trial::rounds(10);
    let kill_after = |moment| {
        let database = new();
        let result = migrate_and_kill_after(&database, moment);
        database.remove();
        result
    };
    let whole = (0..3).map(|_| kill_after(Duration::from_mins(1)).1).max().unwrap();
    let (mut before, mut within, mut after) = (0, 0, 0);
    for moment in trial::counted(moments) {
        // Up to a quarter later than the end, because the time varies.
        match kill_after(whole * 5 * moment / moments / 4).0 {
            0 => before += 1,
            steps if steps < migrations() => within += 1,
            _ => after += 1,
        }
    }
    // Control: kills hit before and after the migrations.
    assert!(before + within > 0 && within + after > 0, "{before} kills before, {within} within, {after} after");
    trial::measured(&format!(
        "{moments} kills at moments spread over {} ms, {before} of them before the first step's end, {within} more before \
         the last's: each time it opens",
        (whole * 5 / 4).as_millis()
    ));
}

/// Returns the number of applied steps after the kill, and the time that the program ran. The database opens afterwards.
fn migrate_and_kill_after(database: &Database, moment: Duration) -> (usize, Duration) {
    let began = Instant::now();
    let mut migrating = start_migrating(database);
    while began.elapsed() < moment && migrating.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_micros(100));
    }
    let took = began.elapsed();
    let _ = migrating.kill();
    migrating.wait().unwrap();
    let steps = applied(database);
    assert_opens(database);
    (steps, took)
}

/// The number of applied steps. Zero if the table of steps does not exist.
fn applied(database: &Database) -> usize {
    database.try_sql("SELECT count(*) FROM refinery_schema_history").map_or(0, |count| count.parse().unwrap())
}

#[test]
fn migration_killed_within_a_step_leaves_no_trace() {
    let (rounds, steps) = (trial::rounds(1), steps());
    for _ in trial::counted(rounds) {
        for (before, step) in steps.iter().enumerate() {
            kill_within(before, step);
        }
    }
    trial::measured(&format!("{rounds} kills within each of {} steps, nothing of the step left", steps.len()));
}

/// The last object that a migration creates. A lock can suspend the migration there.
enum Step {
    Table(String),
    /// A table and its new column, in a step that creates no table.
    Column(String, String),
    /// A new index and its table.
    Index(String, String),
}

fn steps() -> Vec<Step> {
    let word = |text: &str| text.split([' ', '(']).next().unwrap().to_owned();
    let step = |file: &PathBuf| {
        let sql = std::fs::read_to_string(file).unwrap();
        if let Some((_, after)) = sql.rsplit_once("CREATE TABLE ") {
            return Step::Table(word(after));
        }
        if let Some((_, after)) = sql.rsplit_once("CREATE INDEX IF NOT EXISTS ") {
            let (index, after) = after.split_once(" ON ").expect("an index is on a table");
            return Step::Index(index.to_owned(), word(after));
        }
        let (_, after) = sql.rsplit_once("ALTER TABLE ").expect("a step of a known kind");
        let (table, after) = after.split_once(" ADD COLUMN ").expect("a step of a known kind");
        Step::Column(table.to_owned(), word(after))
    };
    postgres::migrations().iter().map(step).collect()
}

impl Step {
    /// SQL of a transaction that blocks the step.
    fn blocker(&self) -> String {
        match self {
            Self::Table(table) => format!("CREATE TABLE {table} ()"),
            Self::Column(table, _) => format!("LOCK TABLE {table} IN ACCESS SHARE MODE"),
            Self::Index(_, table) => format!("LOCK TABLE {table} IN ROW EXCLUSIVE MODE"),
        }
    }

    /// A query that tells whether nothing of the step is left.
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
    let url = postgres::database_at(before);
    let database = Database::url(&url);
    let blocker = OpenTransaction::begin(&url, &step.blocker());
    let waiting = || sessions(&url, "wait_event_type = 'Lock'");
    let mut migrating = start_migrating(&database);
    within(TIMEOUT, "reaching the lock", || waiting() == 1);
    migrating.kill().unwrap();
    migrating.wait().unwrap();

    blocker.release();
    within(TIMEOUT, "ending", || waiting() == 0);
    // The steps before were applied completely and stay.
    let applied = || query(&url, "SELECT count(*) FROM refinery_schema_history");
    assert_eq!(applied(), before.to_string());
    assert_eq!(query(&url, &step.is_undone()), "t");
    assert_opens(&database);
    assert_eq!(applied(), migrations().to_string());
    database.remove();
}

/// The number of migrations in the program.
fn migrations() -> usize {
    postgres::migrations().len()
}

fn start_migrating(database: &Database) -> Child {
    database.petstore("migrate").stderr(Stdio::null()).spawn().unwrap()
}

fn assert_opens(database: &Database) {
    database.run("migrate");
    database.make_key();
}

#[test]
fn program_works_with_newer_schemas_that_allow_it() {
    let rounds = trial::rounds(1);
    let answered: usize = trial::counted(rounds).map(|_| requests_beside_a_newer_schema()).sum();
    trial::measured(&format!(
        "{rounds} databases migrated to a later schema beside a process that serves: {answered} requests meanwhile, none failed"
    ));
}

/// Returns the number of requests that succeeded during a migration.
fn requests_beside_a_newer_schema() -> usize {
    let database = Database::postgres();
    let key = database.make_key();
    let service = database.serve();
    let stop = Stop::new();
    let answered = thread::scope(|scope| {
        let stop_on_drop = stop.on_drop();
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| send_until(&stop, &service, &key))).collect();
        thread::sleep(Duration::from_millis(100));
        // Changes that a later version may make while this one serves.
        database.sql(
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
        drop(stop_on_drop);
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    drop(service);
    // A process can also start with the newer schema.
    assert_eq!(database.serve().create_pet(&key, "Rex").status(), 201);

    // Control: a schema that excludes this version is rejected.
    database.sql("UPDATE meta SET value = '998' WHERE key = 'oldest_schema'");
    let stderr = database.rejects("migrate");
    assert!(stderr.contains("schema version 999") && stderr.contains("use a newer petstore"), "{stderr}");
    database.remove();
    answered
}

/// Sends requests that must succeed. Returns their number.
fn send_until(stop: &Stop, service: &Server, key: &str) -> usize {
    let mut answered = 0;
    while !stop.is_requested() {
        assert_eq!(service.create_pet(key, "Rex").status(), 201);
        assert_eq!(service.get("/v1/pets", key).status(), 200);
        assert_eq!(service.get("/v1/pets/1", key).status(), 200);
        assert_eq!(service.send_message(key, "hello").status(), 202);
        answered += 4;
    }
    answered
}
