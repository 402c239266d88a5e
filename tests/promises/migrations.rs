//! Promise 30: migrations, whoever starts them and whatever happens in between.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::postgres_server::{Server, query, try_query};
use crate::process::{Database, Process, within};

#[test]
fn processes_that_start_together_migrate_once() {
    let url = Server::shared().database();
    let database = Database::url(&url);
    let processes: Vec<_> = (0..8).map(|_| Process::serve(&database)).collect();
    let starting: Vec<_> = (0..8).map(|_| database.petstore("migrate").spawn().unwrap()).collect();
    for mut process in starting {
        assert!(process.wait().unwrap().success());
    }
    drop(processes);
    let applied = query(&url, "SELECT count(*), count(DISTINCT version) FROM refinery_schema_history");
    assert_eq!(applied, format!("{0}|{0}", migrations()));
}

#[test]
fn a_process_that_is_killed_at_any_moment_leaves_a_database_that_opens() {
    const MOMENTS: u32 = 10;
    let database = Database::url(Server::shared().database());
    let began = Instant::now();
    assert!(database.petstore("migrate").output().unwrap().status.success());
    let whole = began.elapsed();
    for moment in 1..=MOMENTS {
        let database = Database::url(Server::shared().database());
        let mut migrating = database.petstore("migrate").stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(whole * moment / MOMENTS);
        let _ = migrating.kill();
        migrating.wait().unwrap();
        opens(&database);
    }
}

#[test]
fn a_process_that_is_killed_within_a_step_leaves_nothing_of_it() {
    let server = Server::shared();
    let url = server.database();
    let database = Database::url(&url);
    // The step's last table is being made by somebody else, so the step stops there until they are done.
    let blocker = thread::spawn({
        let url = url.clone();
        move || try_query(&url, "BEGIN; CREATE TABLE messages (); SELECT pg_sleep(60)")
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
    opens(&database);
    assert_eq!(query(&url, "SELECT count(*) FROM refinery_schema_history"), migrations().to_string());
}

/// How many there are.
fn migrations() -> usize {
    std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres")).unwrap().count()
}

fn opens(database: &Database) {
    let opened = database.petstore("migrate").output().unwrap();
    assert!(opened.status.success(), "{}", String::from_utf8_lossy(&opened.stderr));
    database.make_key();
}

#[test]
fn a_program_works_beside_a_newer_schema_until_that_says_no() {
    let url = Server::shared().database();
    let database = Database::url(&url);
    let key = database.make_key();
    query(
        &url,
        "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
         VALUES (999, 'later', '2030-01-01T00:00:00Z', '1')",
    );
    let service = Process::serve(&database);
    assert_eq!(service.create_pet(&key, "Rex").status, 201);

    query(&url, "UPDATE meta SET value = '998' WHERE key = 'oldest_schema'");
    let refused = database.petstore("migrate").output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("schema version 999") && told.contains("use a newer petstore"), "{told}");
}
