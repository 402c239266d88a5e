//! `reset`: a new first state, all or nothing, beside running services. `verification/tests/promises/reset.rs` resets under load.

use std::process::{Command, Stdio};

use serde_json::json;
use testkit::console::between;
use testkit::postgres::{self, OpenTransaction, sessions};
use testkit::{ConsoleUser, Database, Process, Request, Response, Server, Signal, TIMEOUT, succeed, within};

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

    fn animals(&self) -> usize {
        self.database.sql("SELECT count(*) FROM pets").parse().unwrap()
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

        assert_eq!(shop.animals(), 2);
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
        assert_eq!(shop.animals(), 2);
    }
    let (code, shown) = on_a_terminal(&shop, "y");
    assert!(code == Some(0) && shown.contains("deleted 2 animals, 0 orders"), "{shown}");
    assert!(shown.contains("added 30 animals"), "{shown}");
    assert_eq!(shop.animals(), 30);

    let (_, shown) = on_a_terminal(&on_postgres, "n");
    assert!(shown.contains("Reset postgres://petstore@127.0.0.1:"), "{shown}");
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
    assert_eq!(shop.animals(), 2);
}
