//! `reset`: a new first state, all or nothing, beside running services.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;
use testkit::console::between;
use testkit::postgres::{self, OpenTransaction, sessions};
use testkit::writers::Mix;
use testkit::{
    ConsoleUser, Database, Ledger, Process, Random, Request, Response, Server, Signal, TIMEOUT, Writers, succeed,
    within,
};

const CREATE: &str = "account create ada@example.com --deployment staging";

/// A staging store with a key of `ada@example.com`.
struct Shop {
    database: Database,
    key: String,
    /// For files of animals.
    folder: tempfile::TempDir,
}

impl Shop {
    fn on_every_database() -> [Self; 2] {
        [Database::temporary(), Database::postgres()].map(Self::in_database)
    }

    fn in_database(database: Database) -> Self {
        database.run(CREATE);
        Self { key: database.another_key(), database, folder: tempfile::tempdir().unwrap() }
    }

    /// The command that replaces the animals by `count` that are named after `prefix`.
    fn reset_to(&self, prefix: &str, count: usize) -> Command {
        let lines = (1..=count).map(|n| format!("{{\"name\":\"{prefix} {n}\",\"categoryId\":1}}\n"));
        self.reset_to_file(&lines.collect::<String>())
    }

    fn reset_to_file(&self, content: &str) -> Command {
        let file = self.folder.path().join("animals.ndjson");
        std::fs::write(&file, content).unwrap();
        let mut command = self.database.petstore("reset --yes --pets");
        command.arg(file);
        command
    }

    fn place_order(&self, server: &Server, pet: i64) -> Response {
        let body = json!({ "petId": pet }).to_string();
        let request = Request::new(server.store(), "POST", "/v1/store/orders").key(&self.key);
        request.header("idempotency-key", "once").json(body).send_blocking()
    }

    fn ids(&self, server: &Server, path: &str) -> Vec<i64> {
        server.get(path, &self.key).ids()
    }

    fn messages(&self, server: &Server) -> usize {
        let list = Request::new(server.messages(), "GET", "/v1/messages").key(&self.key).send_blocking();
        list.json().as_array().unwrap().len()
    }

    /// The ids of all animals in the database, by name.
    fn animals(&self) -> HashMap<String, String> {
        let rows = self.database.sql("SELECT name, id FROM pets");
        rows.lines().map(|row| row.split_once('|').unwrap()).map(|(name, id)| (name.into(), id.into())).collect()
    }
}

/// Each page is requested before the reset, so that it is cached.
#[tokio::test]
async fn services_show_the_new_state_when_the_command_ends() {
    for shop in Shop::on_every_database() {
        let services = [shop.database.serve(), shop.database.serve()];
        let mut ada = ConsoleUser::signed_in(services[0].store(), "grace@example.com").await;
        for round in 0..3 {
            for n in 0..40 {
                assert_eq!(services[n % 2].create_pet(&shop.key, "Rex").status(), 201);
            }
            let order = shop.place_order(&services[0], 1);
            assert!((order.status(), order.id(), order.is_replayed()) == (201, 1, false), "round {round}: {order:?}");
            assert!(shop.place_order(&services[1], 1).is_replayed());
            assert_eq!(services[1].send_message(&shop.key, "Hello").status(), 202);
            for service in &services {
                assert_eq!(shop.ids(service, "/v1/pets?status=pending").first(), Some(&1));
                assert_eq!(shop.ids(service, "/v1/pets?limit=100").len(), 40 + 30 * usize::from(round > 0));
                assert_eq!((shop.ids(service, "/v1/store/orders").len(), shop.messages(service)), (1, 1));
                assert_eq!(service.get("/v1/pets/40", &shop.key).status(), 200);
            }

            shop.database.run("reset --yes");

            for service in &services {
                assert_eq!(shop.ids(service, "/v1/pets?limit=100"), (1..=30).collect::<Vec<_>>());
                assert_eq!(shop.ids(service, "/v1/pets?status=pending"), (2..=29).step_by(3).collect::<Vec<_>>());
                assert_eq!((shop.ids(service, "/v1/store/orders").len(), shop.messages(service)), (0, 0));
                assert_eq!(service.get("/v1/store/orders/1", &shop.key).status(), 404);
                assert_eq!(service.get("/v1/pets/40", &shop.key).status(), 404);
                ada.address = service.store();
                let overview = ada.get("/").await.body;
                assert!(overview.contains("Sign out"), "the session stays");
                assert_eq!(between(&overview, "animals?status=sold\"><span class=\"figure\">", "<"), "10");
                assert!(overview.contains("<span class=\"figure\">30</span> all"), "{overview}");
            }
        }
        // A follower of the old animals receives what is added to the new ones.
        assert_eq!(shop.ids(&services[0], "/v1/pets?after=40"), [0; 0]);
        assert_eq!(services[1].create_pet(&shop.key, "Rex").id(), 31);
        assert_eq!(shop.ids(&services[0], "/v1/pets?after=30"), [31]);
    }
}

#[test]
fn animals_of_a_file_or_none_replace_the_others() {
    for shop in Shop::on_every_database() {
        succeed(&mut shop.reset_to("old", 3));
        assert_eq!(shop.database.sql("SELECT id, name FROM pets ORDER BY id"), "1|old 1\n2|old 2\n3|old 3");

        shop.database.run("reset --yes --empty");

        let service = shop.database.serve();
        assert_eq!(shop.ids(&service, "/v1/pets"), [0; 0]);
        assert_eq!(service.create_pet(&shop.key, "Rex").id(), 1);
    }
}

#[test]
fn invalid_file_production_and_missing_confirmation_change_nothing() {
    for shop in Shop::on_every_database() {
        succeed(&mut shop.reset_to("old", 2));
        let mut invalid = shop.reset_to_file("{\"name\":\"Rex\",\"categoryId\":1}\n{\"name\":\"Rex\"}\n");
        let shown = Process::start(&mut invalid).end().shown();
        let why = "line 2: The field `categoryId` is required.";
        assert!(shown.starts_with("exit 1\n") && shown.contains(why), "{shown}");

        // Its stdin is empty.
        let shown = shop.database.rejects("reset --yes --pets -");
        assert!(shown.ends_with("error: - has no animals (--pets): to have none, use --empty\n"), "{shown}");

        let mut unconfirmed = shop.database.petstore("reset");
        let shown = Process::start(unconfirmed.stdin(Stdio::null())).end().shown();
        let deleted = "reset would delete 2 animals, 0 orders, 0 messages and 0 stored responses of ";
        assert!(shown.contains(deleted) && shown.ends_with(": confirm with --yes\n"), "{shown}");

        assert_eq!(shop.animals().len(), 2);
    }
    for database in [Database::temporary(), Database::postgres()] {
        let key = database.make_key();
        assert_eq!(database.serve().create_pet(&key, "Rex").status(), 201);
        for flags in ["", "--yes", "--empty --yes"] {
            let why = "error: this is a production store, which cannot be reset: choose a staging store\n";
            let shown = database.rejects(&format!("reset {flags}"));
            assert!(shown.ends_with(why), "{shown}");
        }
        assert_eq!(database.sql("SELECT name FROM pets"), "Rex");
    }
}

#[test]
fn reset_names_its_target_and_asks_on_a_terminal() {
    let [shop, on_postgres] = Shop::on_every_database();
    let on_a_terminal = |shop: &Shop, answer: &str| shop.database.on_a_terminal("reset", answer);
    succeed(&mut shop.reset_to("old", 2));
    for answer in ["", "n", "reset"] {
        let (code, shown) = on_a_terminal(&shop, answer);
        let question = format!(
            "Reset {} and delete 2 animals, 0 orders, 0 messages and 0 stored responses? \
             Accounts, keys and sessions stay. This cannot be undone. [y/N]",
            shop.database.data_dir().display()
        );
        assert!(shown.contains(&question), "{shown}");
        assert!(code == Some(1) && shown.contains("error: nothing was changed"), "{shown}");
        assert_eq!(shop.animals().len(), 2);
    }
    let (code, shown) = on_a_terminal(&shop, "y");
    assert!(code == Some(0) && shown.contains("deleted 2 animals, 0 orders"), "{shown}");
    assert!(shown.contains("added 30 animals"), "{shown}");
    assert_eq!(shop.animals().len(), 30);

    let (_, shown) = on_a_terminal(&on_postgres, "n");
    assert!(shown.contains("Reset postgres://petstore@127.0.0.1:"), "{shown}");
}

/// The store alternates between two states, under load.
#[test]
fn killed_reset_leaves_the_old_or_the_new_state() {
    const ANIMALS: usize = 3_000;
    let mut random = Random::from_seed();
    for shop in Shop::on_every_database() {
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
            within(TIMEOUT, "placing an order", || shop.place_order(&service, 1).status() == 201);
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
fn interrupted_wait_for_tables_in_use_changes_nothing() {
    let url = postgres::database();
    let shop = Shop::in_database(Database::url(&url));
    succeed(&mut shop.reset_to("old", 2));
    let dump = OpenTransaction::begin(&url, "SELECT count(*) FROM orders");
    let waiting = Process::start(&mut shop.reset_to("new", 3));
    within(TIMEOUT, "waiting for the lock", || sessions(&url, "wait_event_type = 'Lock'") > 0);

    waiting.signal(Signal::INT);

    // Otherwise it would wait for 30 s.
    let ended = waiting.end();
    assert!(
        ended.code == Some(130) && ended.stderr.ends_with("error: interrupted: nothing was changed\n"),
        "{ended:?}"
    );
    dump.release();
    assert_eq!(shop.animals().len(), 2);
}

#[test]
fn reset_deletes_earlier_writes_and_keeps_later_ones() {
    for shop in Shop::on_every_database() {
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
