//! `reset` under load: it deletes earlier writes and keeps later ones, and if it is killed, it has happened or it has not.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;
use testkit::{Database, Process, Random, Request, Server, TIMEOUT, succeed, within};
use verification::writers::Mix;
use verification::{Ledger, Writers};

/// A staging store with a key of `ada@example.com`, and a folder for files of animals.
struct Staging {
    database: Database,
    key: String,
    folder: tempfile::TempDir,
}

impl Staging {
    fn on_every_database() -> [Self; 2] {
        [Database::temporary(), Database::postgres()].map(|database| {
            database.run("account create ada@example.com --deployment staging");
            Self { key: database.another_key(), database, folder: tempfile::tempdir().unwrap() }
        })
    }

    /// The command that replaces the animals by `count` that are named after `prefix`.
    fn reset_to(&self, prefix: &str, count: usize) -> Command {
        let lines = (1..=count).map(|n| format!("{{\"name\":\"{prefix} {n}\",\"categoryId\":1}}\n"));
        let file = self.folder.path().join("animals.ndjson");
        std::fs::write(&file, lines.collect::<String>()).unwrap();
        let mut command = self.database.petstore("reset --yes --pets");
        command.arg(file);
        command
    }

    fn places_order(&self, server: &Server, pet: i64) -> bool {
        let body = json!({ "petId": pet }).to_string();
        let request = Request::new(server.store(), "POST", "/v1/store/orders").key(&self.key);
        request.header("idempotency-key", "once").json(body).send_blocking().status() == 201
    }

    /// The ids of all animals in the database, by name.
    fn animals(&self) -> HashMap<String, String> {
        let rows = self.database.sql("SELECT name, id FROM pets");
        rows.lines().map(|row| row.split_once('|').unwrap()).map(|(name, id)| (name.into(), id.into())).collect()
    }
}

/// The store alternates between two states, under load.
#[test]
fn killed_reset_leaves_the_old_or_the_new_state() {
    const ANIMALS: usize = 3_000;
    let mut random = Random::from_seed();
    for shop in Staging::on_every_database() {
        succeed(&mut shop.reset_to("even", ANIMALS));
        let service = shop.database.serve();
        let began = Instant::now();
        succeed(&mut shop.reset_to("odd", ANIMALS));
        let whole = began.elapsed().as_millis() as u64;
        let ledger = Ledger::default();
        let load = Writers::start(&service, &shop.key, &ledger, "load", Mix { clients: 4, ..Mix::MIXED });
        let (mut state, mut finished) = ("odd", 0);
        for round in 0..8 {
            // On a busy machine, it may get a 503.
            within(TIMEOUT, "placing an order", || shop.places_order(&service, 1));
            let next = if state == "odd" { "even" } else { "odd" };
            let mut reset = Process::start_with_stdout(&mut shop.reset_to(next, ANIMALS), Stdio::null());
            random.sleep(0..whole + 20);
            reset.kill();
            wait_for_its_server_process(&shop.database);

            let of = |prefix| {
                let count = "SELECT count(*), coalesce(min(id), 0), coalesce(max(id), 0) FROM pets WHERE name LIKE";
                shop.database.sql(&format!("{count} '{prefix} %'"))
            };
            let all = format!("{ANIMALS}|1|{ANIMALS}");
            let found = (of(state), of(next), shop.database.sql("SELECT count(*) FROM orders"));
            if found.1 == all {
                (state, finished) = (next, finished + 1);
                assert_eq!((found.0, found.2), ("0|0|0".into(), "0".into()), "round {round}");
            } else {
                assert_eq!(found, (all, "0|0|0".into(), "1".into()), "round {round}");
            }
        }
        load.stop();
        assert_eq!(service.get("/v1/pets", &shop.key).status(), 200);
        println!("{finished} of 8 killed resets had finished");
    }
}

/// The server process of a killed client may still be executing its last statements.
fn wait_for_its_server_process(database: &Database) {
    if !database.is_embedded() {
        let active = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND query LIKE '%added_pets%' AND pid <> pg_backend_pid()";
        within(TIMEOUT, "the end of the killed reset", || database.sql(active) == "0");
    }
}

#[test]
fn reset_deletes_earlier_writes_and_keeps_later_ones() {
    for shop in Staging::on_every_database() {
        let services = [shop.database.serve(), shop.database.serve()];
        for round in 0..3 {
            let (before, after) = (Ledger::default(), Ledger::default());
            let mix = Mix { clients: 8, ..Mix::MIXED };
            let start = |ledger: &Ledger, run: &str| {
                let run = format!("{run}-{round}");
                let each = services.iter().zip(["a", "b"]);
                each.map(|(service, name)| Writers::start(service, &shop.key, ledger, &format!("{run}-{name}"), mix))
                    .collect::<Vec<_>>()
            };
            let running = start(&before, "before");
            within(TIMEOUT, "some writes", || before.acknowledged() > 50);
            let gone = before.acknowledgements();

            succeed(&mut shop.reset_to("new", 100));

            let running_after = start(&after, "after");
            within(TIMEOUT, "some writes", || after.acknowledged() > 50);
            running.into_iter().chain(running_after).for_each(Writers::stop);
            let there = shop.animals();
            assert_eq!(after.missing_animals(&there), [""; 0], "round {round}");
            assert!(!gone.keys().any(|name| there.contains_key(name)), "round {round}");
            assert!((1..=100).all(|id| there[&format!("new {id}")] == id.to_string()), "round {round}");
        }
    }
}
