//! Promise 30: migrations, whoever starts them and whatever happens in between.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::postgres_server::{Server, query};
use crate::process::{Database, Process};

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
    assert_eq!(query(&url, "SELECT count(*), count(DISTINCT version) FROM refinery_schema_history"), "1|1");
}

#[test]
fn a_process_that_is_killed_while_it_migrates_leaves_a_database_that_opens() {
    let mut begun = 0;
    for round in 0..12 {
        let url = Server::shared().database();
        let database = Database::url(&url);
        let mut migrating = database.petstore("migrate").stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(5 * round));
        let _ = migrating.kill();
        migrating.wait().unwrap();
        begun += u32::from(query(&url, "SELECT to_regclass('refinery_schema_history') IS NOT NULL") == "t");

        let opened = database.petstore("migrate").output().unwrap();
        assert!(opened.status.success(), "{}", String::from_utf8_lossy(&opened.stderr));
        database.make_key();
    }
    println!("{begun} of 12 had begun");
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
