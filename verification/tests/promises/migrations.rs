//! Promise 30: migrations are atomic, run once when processes start concurrently, and keep older processes working.

use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::postgres::{self, OpenTransaction, query, sessions};
use testkit::{Database, Process, Server, Shop, Stop, TIMEOUT, trial, within};

#[test]
fn concurrent_starts_migrate_once() {
    let folder = tempfile::tempdir().unwrap();
    for database in [Database::folder(&folder.path().join("new")), Database::postgres()] {
        let migrations: Vec<_> = (0..8).map(|_| Process::start(&mut database.petstore("migrate"))).collect();
        thread::scope(|scope| {
            for server in [(); 8].map(|()| scope.spawn(|| database.serve())) {
                assert_eq!(server.join().unwrap().listening["deployment"], "production");
            }
        });
        for ended in migrations.into_iter().map(Process::end) {
            // Each process warns that the PostgreSQL server of the tests runs without fsync.
            let is_silent = ended.stderr.is_empty() || !database.is_embedded();
            assert!(ended.code == Some(0) && is_silent, "{ended:?}");
        }
        // A migration that ran twice would have failed, because its tables were there.
        let migrations =
            std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/sqlite")).unwrap().count();
        assert_eq!(database.sql("SELECT count(*) FROM schema_history"), migrations.to_string());
    }
}

#[test]
fn killed_migration_leaves_a_usable_database() {
    kill_at_moments(Database::postgres);
}

#[test]
fn killed_migration_leaves_a_usable_folder() {
    kill_at_moments(Database::temporary);
}

/// Kills migrations of new databases at moments around their end: earlier after one that was complete, otherwise later,
/// because their time varies.
fn kill_at_moments(new: fn() -> Database) {
    let moments = trial::rounds(10);
    let kill_after = |moment| {
        let database = new();
        let result = migrate_and_kill_after(&database, moment);
        database.remove();
        result
    };
    let whole = (0..3).map(|_| kill_after(Duration::from_mins(1)).1).max().unwrap();
    let (mut before, mut after) = (0, 0);
    let (mut moment, mut latest) = (whole / 2, Duration::ZERO);
    for _ in trial::counted(moments) {
        latest = latest.max(moment);
        if kill_after(moment).0 {
            after += 1;
            moment /= 3;
        } else {
            before += 1;
            moment *= 2;
        }
    }
    // Control: kills hit before and after the migrations.
    assert!(before > 0 && after > 0, "{before} kills before, {after} after");
    trial::measured(&format!(
        "{moments} kills within {} ms, {before} of them before the migration's end: each time it opens",
        latest.as_millis()
    ));
}

/// Returns whether the migration was applied at the kill, and the time that the program ran. The database opens afterwards.
fn migrate_and_kill_after(database: &Database, moment: Duration) -> (bool, Duration) {
    let began = Instant::now();
    let mut migrating = start_migrating(database);
    while began.elapsed() < moment && migrating.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_micros(100));
    }
    let took = began.elapsed();
    let _ = migrating.kill();
    migrating.wait().unwrap();
    let is_applied = database.try_sql("SELECT count(*) FROM schema_history").is_ok();
    assert_opens(database);
    (is_applied, took)
}

#[test]
fn migration_killed_within_a_step_leaves_no_trace() {
    let rounds = trial::rounds(1);
    trial::counted(rounds).for_each(|_| kill_at_the_last_table());
    trial::measured(&format!("{rounds} kills within the first migration, nothing of it left"));
}

/// Suspends the first migration at its last table by a lock, and kills it there.
fn kill_at_the_last_table() {
    let sql = include_str!("../../../migrations/postgres/V0001__store.sql");
    let (_, last) = sql.rsplit_once("CREATE TABLE ").unwrap();
    let table = last.split(' ').next().unwrap();
    let url = postgres::database();
    let database = Database::url(&url);
    let blocker = OpenTransaction::begin(&url, &format!("CREATE TABLE {table} ()"));
    let waiting = || sessions(&url, "wait_event_type = 'Lock'");
    let mut migrating = start_migrating(&database);
    within(TIMEOUT, "reaching the lock", || waiting() == 1);
    migrating.kill().unwrap();
    migrating.wait().unwrap();

    blocker.release();
    within(TIMEOUT, "ending", || waiting() == 0);
    assert_eq!(query(&url, "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"), "0");
    assert_opens(&database);
    database.remove();
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
    let Shop { database, key } = Shop::on_postgresql();
    let service = database.serve();
    let (stop, answered) = (Stop::new(), AtomicUsize::new(0));
    let exceeds = |number: usize| within(TIMEOUT, "answers", || answered.load(Ordering::Relaxed) > number);
    thread::scope(|scope| {
        let _stop = stop.on_drop();
        (0..4).for_each(|_| _ = scope.spawn(|| send_until(&stop, &service, &key, &answered)));
        exceeds(0);
        // Changes that a later version may make while this one serves.
        database.sql(
            "BEGIN;
             ALTER TABLE pets ADD COLUMN later bigint;
             ALTER TABLE messages ADD COLUMN later text DEFAULT 'none';
             CREATE TABLE later (id bigint PRIMARY KEY);
             CREATE INDEX later_pets ON pets (category_id);
             INSERT INTO schema_history (version, name) VALUES (999, 'later');
             COMMIT",
        );
        // More than each client may have begun before.
        exceeds(answered.load(Ordering::Relaxed) + 4 * 4);
    });
    drop(service);
    // A process can also start with the newer schema.
    assert_eq!(database.serve().create_pet(&key, "Rex").status(), 201);

    // Control: a schema that excludes this version is rejected.
    database.sql("UPDATE meta SET value = '998' WHERE key = 'oldest_schema'");
    let stderr = database.rejects("migrate");
    assert!(stderr.contains("schema version 999") && stderr.contains("use a newer petstore"), "{stderr}");
    database.remove();
    answered.into_inner()
}

/// Sends requests that must succeed, and counts them.
fn send_until(stop: &Stop, service: &Server, key: &str, answered: &AtomicUsize) {
    while !stop.is_requested() {
        assert_eq!(service.create_pet(key, "Rex").status(), 201);
        assert_eq!(service.get("/v1/pets", key).status(), 200);
        assert_eq!(service.get("/v1/pets/1", key).status(), 200);
        assert_eq!(service.send_message(key, "hello").status(), 202);
        answered.fetch_add(4, Ordering::Relaxed);
    }
}
