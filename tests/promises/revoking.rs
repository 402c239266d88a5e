//! Promise 11: a key that was revoked is refused everywhere within a second.

use std::time::Duration;

use crate::forms::{PASSWORD, post, sign_up_and_in};
use crate::postgres_server::Server;
use crate::process::{Database, Process, within};

const TRIALS: usize = 5;

#[test]
fn a_revoked_key_is_refused_in_three_processes_within_a_second() {
    let database = Database::url(Server::shared().database());
    database.make_key();
    let services: Vec<_> = (0..3).map(|_| Process::serve(&database)).collect();
    let mut slowest = Duration::ZERO;
    for _ in 0..TRIALS {
        let key = database.another_key();
        services.iter().for_each(|service| assert_eq!(service.get("/v1/pets", &key).status, 200));
        let listed = database.petstore("key list --json").output().unwrap().stdout;
        let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
        let id = listed.as_array().unwrap().last().unwrap()["id"].to_string();
        assert!(database.petstore(&format!("key revoke {id}")).status().unwrap().success());
        for service in &services {
            let took = within(Duration::from_secs(1), "refusing", || service.get("/v1/pets", &key).status == 401);
            slowest = slowest.max(took);
        }
    }
    println!("the slowest took {slowest:?}");
}

#[test]
fn the_keys_of_an_account_that_is_deleted_in_one_process_are_refused_in_another_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    for database in [Database::folder(folder.path()), Database::url(Server::shared().database())] {
        let (one, other) = (Process::serve(&database), Process::serve(&database));
        let cookie = sign_up_and_in(&one, "ada@example.com");
        let key = database.another_key();
        // Until each has noticed that the key was made, and remembers it: only its end can make them ask again.
        std::thread::sleep(Duration::from_secs(1));
        for service in [&one, &other] {
            assert_eq!(service.get("/v1/pets", &key).status, 200);
        }

        let deleted = post(&one, "/account/delete", &cookie, &[("password", PASSWORD)]);

        assert_eq!(deleted.status, 303, "{}", deleted.text);
        assert_eq!(one.get("/v1/pets", &key).status, 401, "here it is refused at once");
        let took = within(Duration::from_secs(1), "refusing", || other.get("/v1/pets", &key).status == 401);
        println!("elsewhere it took {took:?}");
    }
}
