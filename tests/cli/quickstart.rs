//! `quickstart`: sample data, a running service, and printed commands that work.

use std::os::unix::fs::PermissionsExt;

use expect_test::expect;
use serde_json::Value;
use testkit::{Certificate, ConsoleUser, Ended, FREE_PORTS, Folder, Process, Server, Signal, petstore};

use crate::shell;

#[test]
fn quickstart_prints_addresses_and_curl_lines() {
    let (folder, server) = Folder::serving("quickstart");

    let printed = server.printed_until("Stop");

    let shown = printed
        .replace(&server.address("store").to_string(), "STORE")
        .replace(&server.address("messages").to_string(), "MESSAGES")
        .replace(&server.address("ops").to_string(), "OPERATIONS")
        .replace(password(&printed), "PASSWORD")
        .replace(folder.read("petstore-data/quickstart.key").trim_end(), "KEY")
        .replace(petstore(), "PETSTORE");
    expect![[r#"
        petstore is running.

          store API      http://STORE/v1
          messages API   http://MESSAGES/v1
          console        http://STORE/
          API reference  http://STORE/docs
          document       http://STORE/openapi.json
          operations     http://OPERATIONS/metrics

          account        quickstart@localhost
          password       PASSWORD  (not shown again)
          API key        KEY
          program        PETSTORE

        List available animals:
          curl 'http://STORE/v1/pets?status=available&limit=5' -H 'Authorization: Bearer KEY'

        Add an animal:
          curl 'http://STORE/v1/pets' -H 'Authorization: Bearer KEY' -H 'Content-Type: application/json' -d '{"name":"Bello","categoryId":1}'

        Get an animal (deprecated, will be removed on 5 December 2030):
          curl 'http://STORE/v1/pets/1' -H 'Authorization: Bearer KEY'

        Order an available animal, then cancel your oldest placed order (provisional):
          PET=$(curl -s 'http://STORE/v1/pets?status=available&limit=1' -H 'Authorization: Bearer KEY' | sed 's/.*"id":\([0-9]*\).*/\1/')
          curl 'http://STORE/v1/store/orders' -H 'Authorization: Bearer KEY' -H 'Content-Type: application/json' -d "{\"petId\":$PET}"
          ORDER=$(curl -s 'http://STORE/v1/store/orders?status=placed&limit=1' -H 'Authorization: Bearer KEY' | sed 's/.*"id":\([0-9]*\).*/\1/')
          curl -X POST "http://STORE/v1/store/orders/$ORDER/cancel" -H 'Authorization: Bearer KEY'

        Order an available animal, then approve and deliver your oldest placed order:
          PET=$(curl -s 'http://STORE/v1/pets?status=available&limit=1' -H 'Authorization: Bearer KEY' | sed 's/.*"id":\([0-9]*\).*/\1/')
          curl 'http://STORE/v1/store/orders' -H 'Authorization: Bearer KEY' -H 'Content-Type: application/json' -d "{\"petId\":$PET}"
          ORDER=$(curl -s 'http://STORE/v1/store/orders?status=placed&limit=1' -H 'Authorization: Bearer KEY' | sed 's/.*"id":\([0-9]*\).*/\1/')
          curl -X POST "http://STORE/v1/store/orders/$ORDER/approve" -H 'Authorization: Bearer KEY'
          curl -X POST "http://STORE/v1/store/orders/$ORDER/deliver" -H 'Authorization: Bearer KEY'

        Get that order:
          curl "http://STORE/v1/store/orders/$ORDER" -H 'Authorization: Bearer KEY'

        List your orders:
          curl 'http://STORE/v1/store/orders' -H 'Authorization: Bearer KEY'

        Send a message:
          curl 'http://MESSAGES/v1/messages' -H 'Authorization: Bearer KEY' -H 'Content-Type: application/json' -d '{"message":"Hello, store!"}'

        List your messages (provisional):
          curl 'http://MESSAGES/v1/messages' -H 'Authorization: Bearer KEY'

        This build is for a first look: quick to compile, slow to serve. The optimised one:
          cargo run --release -- quickstart

        Stop with Ctrl-C.
    "#]].assert_eq(&shown);
    let document: Value = serde_json::from_str(include_str!("../../docs/openapi.json")).unwrap();
    let called: Vec<_> = printed.lines().filter_map(called).collect();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|method| ["get", "post"].contains(&&***method)) {
            assert!(called.contains(&(path.clone(), method.clone())), "no line calls {method} {path}: {printed}");
        }
    }
    for name in ["API reference", "document", "operations"] {
        let line = printed.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        let address = line.split_whitespace().last().unwrap();
        let ran = shell::paste(&folder, &[], &[format!("curl --output /dev/null {address}")]);
        assert_eq!(ran[0].statuses, [200], "{address}");
    }
    assert_eq!(server.end_by(Signal::INT).stdout, "", "nothing follows");
}

/// The path and the method that a printed line calls, as in the OpenAPI document.
fn called(line: &str) -> Option<(String, String)> {
    let (_, path) = line.split_once("curl ")?.1.split_once("/v1")?;
    let path = path.split(['\'', '"', '?']).next()?.replace("$ORDER", "{orderId}").replace("/pets/1", "/pets/{petId}");
    let method = if line.contains(" -d ") || line.contains(" -X POST ") { "post" } else { "get" };
    Some((path, method.to_owned()))
}

#[test]
fn printed_lines_work_in_order_on_every_start() {
    let folder = Folder::new();
    Certificate::of_localhost(&folder.path(""), "cert");
    let mut answers = Vec::new();
    for (start, scheme, flags) in
        [(1, "http", ""), (2, "http", ""), (3, "https", "--tls-cert cert.pem --tls-key cert.key")]
    {
        let server = folder.serve(&format!("quickstart {flags}"));
        let printed = server.printed_until("Stop");
        assert!(printed.contains(&format!("console        {scheme}://{}/\n", server.store())), "{printed}");
        let mut commands: Vec<_> = printed.lines().filter(|line| line.contains("curl ")).map(str::to_owned).collect();
        assert_eq!(commands.len(), 16, "{printed}");
        // Control: without the option, curl rejects the certificate.
        let without = commands[0].replace("--cacert", "--capath /nowhere --output");
        let ran = shell::paste(&folder, &[], &[without]).remove(0);
        assert_eq!(ran.stderr.contains("self-signed certificate"), scheme == "https", "{ran:?}");
        // The lines work again if the reader pastes them twice, and in any folder.
        commands.extend(commands.clone());
        commands[0].insert_str(0, "cd /; ");

        let ran = shell::paste(&folder, &[], &commands);

        for (command, ran) in commands.iter().zip(&ran) {
            assert!(ran.succeeded() && ran.statuses.len() == 1, "start {start}: {command}\n{ran:?}");
        }
        assert_eq!(folder.json("key list").len(), 1, "later starts keep the key");
        // Each start has added an animal twice.
        assert_eq!(folder.succeed("pets export").lines().count(), 30 + 2 * start);
        let requests = commands.iter().zip(ran).filter(|(command, _)| !command.contains("=$("));
        answers.extend(requests.map(|(_, ran)| (ran.statuses[0], ran.stdout)));
    }
    let rex = r#"{"id":1,"name":"Rex","categoryId":1,"status":"available"}"#;
    for ((status, body), (expected, start)) in answers.iter().zip([
        (200, format!(r#"[{rex},{{"id":4,"name":"Coco","#)),
        (201, r#"{"id":31,"name":"Bello","categoryId":1,"status":"available"}"#.into()),
        (200, rex.to_owned()),
        (201, r#"{"id":1,"petId":1,"accountId":1,"status":"placed","#.into()),
        (200, r#"{"id":1,"petId":1,"accountId":1,"status":"cancelled","#.into()),
        (201, r#"{"id":2,"petId":1,"accountId":1,"status":"placed","#.into()),
        (200, r#"{"id":2,"petId":1,"accountId":1,"status":"approved","#.into()),
        (200, r#"{"id":2,"petId":1,"accountId":1,"status":"delivered","#.into()),
        (200, r#"{"id":2,"petId":1,"accountId":1,"status":"delivered","#.into()),
        (200, r#"[{"id":1,"petId":1,"accountId":1,"status":"cancelled","#.into()),
        (202, r#"{"id":"msg_"#.into()),
        (200, format!("[{}]", answers[10].1)),
    ]) {
        assert!(*status == expected && body.starts_with(&start), "{status} {body}");
    }
}

#[tokio::test]
async fn quickstart_account_signs_in_with_the_printed_password() {
    let (folder, server) = Folder::serving("quickstart");
    let printed = server.printed_until("Stop");
    let first = password(&printed).to_owned();
    ConsoleUser::new(server.store()).sign_in("quickstart@localhost", &first).await;
    drop(server);

    let server = folder.serve("quickstart");
    let printed = server.printed_until("Stop");

    let line = "shown at the first start; to replace it, run `";
    let (_, command) = printed.split_once(line).unwrap_or_else(|| panic!("{printed}"));
    assert!(!printed.contains(&first), "{printed}");
    ConsoleUser::new(server.store()).sign_in("quickstart@localhost", &first).await;
    let mut shell = folder.program("sh");
    let another = Process::start(shell.args(["-c", command.split_once('`').unwrap().0])).end();
    assert_eq!(another.code, Some(0), "{another:?}");
    assert_eq!(another.stdout.trim_end().len(), 20, "{another:?}");
    ConsoleUser::new(server.store()).sign_in("quickstart@localhost", another.stdout.trim_end()).await;
}

#[test]
fn failed_start_sets_no_password() {
    let folder = Folder::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = folder.command(&format!("quickstart {FREE_PORTS}"));
    let failed = Process::start_with_stdout(&mut command, full.into()).end();
    assert_eq!(failed.code, Some(1), "it cannot print the password: {failed:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let failed = folder.run(&format!("quickstart --listen {}", taken.local_addr().unwrap()));
    assert_eq!((failed.code, failed.stdout.as_str()), (Some(1), ""), "{failed:?}");

    assert_eq!(password(&quickstart(&folder)).len(), 20);
    folder.succeed("account suspend quickstart@localhost");
    let why = "the account quickstart@localhost is suspended: run `petstore account resume quickstart@localhost` first";
    folder.fails_to_serve(&format!("quickstart {FREE_PORTS}"), why);
    assert_eq!(folder.json("key list").len(), 1, "its key is kept");
}

#[test]
fn data_directory_is_private_and_of_staging() {
    let (folder, server) = Folder::serving("quickstart");
    server.printed_until("Stop");

    assert_eq!(server.listening["deployment"], "staging");
    let mode = |name| folder.path(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("petstore-data"), 0o700);
    assert_eq!(mode("petstore-data/quickstart.key"), 0o600);
    assert!(folder.read("petstore-data/quickstart.key").starts_with("pet_test_"));
    assert_eq!(folder.json("key list")[0]["account"], "quickstart@localhost");

    // A lost key is replaced, and the file is private even if it was readable.
    server.end_by(Signal::TERM);
    folder.write("petstore-data/quickstart.key", "no key\n");
    std::fs::set_permissions(folder.path("petstore-data/quickstart.key"), PermissionsExt::from_mode(0o644)).unwrap();
    quickstart(&folder);
    assert_eq!(mode("petstore-data/quickstart.key"), 0o600);
}

#[tokio::test]
async fn revoked_or_lost_key_is_replaced() {
    let folder = Folder::new();
    quickstart(&folder);
    let revoked = folder.read("petstore-data/quickstart.key");
    folder.succeed("key revoke 1");
    quickstart(&folder);
    let lost = folder.read("petstore-data/quickstart.key");
    assert_ne!(lost, revoked);
    std::fs::remove_file(folder.path("petstore-data/quickstart.key")).unwrap();
    let mkfifo = folder.program("mkfifo").arg("petstore-data/quickstart.key").status();
    assert!(mkfifo.unwrap().success());

    let server = folder.serve("quickstart");
    server.printed_until("Stop");

    let key = folder.read("petstore-data/quickstart.key");
    assert_ne!(key, lost);
    assert_eq!(server.request("/v1/pets", key.trim_end()).await.status(), 200);
    assert_eq!(server.request("/v1/pets", revoked.trim_end()).await.status(), 401);
}

#[test]
fn quickstart_changes_production_only_if_told() {
    let folder = Folder::with_account();
    folder.import(["{\"name\":\"Rex\",\"categoryId\":1}\n".to_owned()].into_iter());
    let why = "this is a production database, to which quickstart would add an account, a key and animals: \
               run `petstore serve`, or confirm with --deployment production";
    folder.fails_to_serve("quickstart", why);
    folder.write("petstore-data/quickstart.key", "pet_live_of_another_store");
    assert_eq!(folder.run("quickstart").code, Some(1), "a key file makes no difference");
    assert_eq!((folder.json("account list").len(), folder.json("key list")), (1, Vec::new()));

    let server = folder.serve("quickstart --deployment production");
    server.printed_until("Stop");
    assert_eq!(server.listening["deployment"], "production");
    assert!(folder.read("petstore-data/quickstart.key").starts_with("pet_live_"));
    server.end_by(Signal::TERM);
    // Confirmed once, later starts need no confirmation.
    folder.serve("quickstart").end_by(Signal::TERM);
    assert_eq!(folder.succeed("pets export").lines().count(), 1, "no animals are added to existing ones");
}

/// Starts and stops `quickstart`. Returns its output.
fn quickstart(folder: &Folder) -> String {
    let server: Server = folder.serve("quickstart");
    let printed = server.printed_until("Stop");
    let ended: Ended = server.end_by(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    printed
}

/// The password in the output of the first start.
fn password(printed: &str) -> &str {
    let line = printed.lines().find_map(|line| line.trim_start().strip_prefix("password ")).unwrap();
    line.trim().strip_suffix("  (not shown again)").unwrap_or_else(|| panic!("{printed}"))
}
