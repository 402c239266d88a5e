//! `reset`: a new first state, all or nothing, beside running services. `tests/store/reset.rs` tells what it changes, and
//! `verification/tests/promises/reset.rs` resets under load.

use expect_test::expect;
use testkit::console::between;
use testkit::postgres::{self, OpenTransaction, sessions};
use testkit::{ConsoleUser, Database, Folder, Process, Request, Response, Server, Shop, Signal, TIMEOUT, within};

/// A staging store with a key of `ada@example.com`.
fn staging(database: Database) -> Shop {
    database.run("migrate --deployment staging");
    Shop::on(database)
}

/// Orders the first animal, always with the same idempotency key.
fn place_order(server: &Server, key: &str) -> Response {
    let request = Request::new(server.store(), "POST", "/v1/store/orders").key(key).header("idempotency-key", "once");
    request.json(r#"{"petId":1}"#).send_blocking()
}

/// The numbers of animals, orders and messages that a service lists.
fn counts(server: &Server, key: &str) -> [usize; 3] {
    let messages = Request::new(server.messages(), "GET", "/v1/messages").key(key).send_blocking();
    let list = |path: &str| server.get(path, key).ids().len();
    [list("/v1/pets?limit=100"), list("/v1/store/orders"), messages.json().as_array().unwrap().len()]
}

/// Each page is requested before the reset, so that it is cached.
#[tokio::test]
async fn services_show_the_new_state_when_the_command_ends() {
    for Shop { database, key } in [Database::temporary(), Database::postgres()].map(staging) {
        let services = [database.serve(), database.serve()];
        let mut ada = ConsoleUser::signed_in(services[0].store(), "grace@example.com").await;
        for before in [0, 30] {
            for n in 0..40 {
                assert_eq!(services[n % 2].create_pet(&key, "Rex").status(), 201);
            }
            let order = place_order(&services[0], &key);
            assert_eq!((order.status(), order.id(), order.is_replayed()), (201, 1, false), "{order:?}");
            assert!(place_order(&services[1], &key).is_replayed());
            assert_eq!(services[1].send_message(&key, "Hello").status(), 202);
            for service in &services {
                assert_eq!(counts(service, &key), [before + 40, 1, 1]);
                assert_eq!(service.get("/v1/pets?status=pending", &key).ids()[0], 1);
                assert_eq!(service.get("/v1/pets/40", &key).status(), 200);
            }

            database.run("reset --yes");

            for service in &services {
                assert_eq!(counts(service, &key), [30, 0, 0]);
                assert_eq!(service.get("/v1/pets?status=pending", &key).ids()[0], 2);
                for gone in ["/v1/store/orders/1", "/v1/pets/40"] {
                    assert_eq!(service.get(gone, &key).status(), 404, "{gone}");
                }
                ada.address = service.store();
                let overview = ada.get("/").await.body;
                assert!(overview.contains("Sign out"), "the session stays");
                assert_eq!(between(&overview, "animals?status=sold\"><span class=\"figure\">", "<"), "10");
                assert!(overview.contains("<span class=\"figure\">30</span> all"), "{overview}");
            }
        }
        // A follower of the old animals receives what is added to the new ones.
        assert_eq!(services[0].get("/v1/pets?after=40", &key).ids(), [0; 0]);
        assert_eq!(services[1].create_pet(&key, "Rex").id(), 31);
        assert_eq!(services[0].get("/v1/pets?after=30", &key).ids(), [31]);
    }
}

#[test]
fn flags_choose_the_animals_and_confirm() {
    let folder = Folder::new();
    folder.succeed("migrate --deployment staging");
    folder.succeed("migrate --data-dir production");
    let rex = "{\"name\":\"Rex\",\"categoryId\":1}\n";
    folder.write("two", rex.repeat(2));
    folder.write("invalid", format!("{rex}{{\"name\":\"Rex\"}}\n"));
    let mut told = String::new();
    for flags in [
        "--yes",
        "--yes --pets two",
        "--yes --pets invalid",
        "--yes --pets -",
        "",
        "--yes --empty",
        "--data-dir production --yes --empty",
    ] {
        told += &format!("reset {flags}: {}", folder.run(&format!("reset {flags}")).shown());
        told += &format!("{} animals\n", folder.succeed("pets export").lines().count());
    }
    expect![[r#"
        reset --yes: exit 0
        reset petstore-data: deleted 0 animals, 0 orders, 0 messages and 0 stored responses; added 30 animals
        30 animals
        reset --yes --pets two: exit 0
        reset petstore-data: deleted 30 animals, 0 orders, 0 messages and 0 stored responses; added 2 animals
        2 animals
        reset --yes --pets invalid: exit 1
        warning: line 2: The field `categoryId` is required.
        warning: each line must be one JSON object: see `petstore pets import --help`
        error: nothing was imported: 1 invalid line; correct them
        2 animals
        reset --yes --pets -: exit 1
        error: - has no animals (--pets): to have none, use --empty
        2 animals
        reset : exit 1
        error: reset would delete 2 animals, 0 orders, 0 messages and 0 stored responses of petstore-data: confirm with --yes
        2 animals
        reset --yes --empty: exit 0
        reset petstore-data: deleted 2 animals, 0 orders, 0 messages and 0 stored responses; added 0 animals
        0 animals
        reset --data-dir production --yes --empty: exit 1
        error: this is a production store, which cannot be reset: choose a staging store
        0 animals
    "#]].assert_eq(&told);
}

#[test]
fn reset_names_its_target_and_asks_on_a_terminal() {
    let [shop, on_postgres] = [Database::temporary(), Database::postgres()].map(|database| staging(database).database);
    shop.run("reset --yes");
    let question = format!(
        "Reset {} and delete 30 animals, 0 orders, 0 messages and 0 stored responses? \
         Accounts, keys and sessions stay. This cannot be undone. [y/N]",
        shop.data_dir().display()
    );
    for (answer, code, result) in [
        ("", 1, "error: nothing was changed"),
        ("n", 1, "error: nothing was changed"),
        ("reset", 1, "error: nothing was changed"),
        ("y", 0, "deleted 30 animals, 0 orders"),
    ] {
        let (ended, shown) = shop.on_a_terminal("reset --empty", answer);
        assert!(ended == Some(code) && shown.contains(&question) && shown.contains(result), "{shown}");
    }

    let (_, shown) = on_postgres.on_a_terminal("reset", "n");
    assert!(shown.contains("Reset postgres://petstore@127.0.0.1:"), "{shown}");
}

#[test]
fn interrupted_wait_for_tables_in_use_changes_nothing() {
    let url = postgres::database();
    let shop = staging(Database::url(&url)).database;
    shop.run("reset --yes");
    let dump = OpenTransaction::begin(&url, "SELECT count(*) FROM orders");
    let waiting = Process::start(&mut shop.petstore("reset --yes --empty"));
    within(TIMEOUT, "waiting for the lock", || sessions(&url, "wait_event_type = 'Lock'") > 0);

    waiting.signal(Signal::INT);

    // Otherwise it would wait for 30 s.
    let ended = waiting.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.stderr.ends_with("error: interrupted: nothing was changed\n"), "{ended:?}");
    dump.release();
    assert_eq!(shop.sql("SELECT count(*) FROM pets"), "30");
}
