//! The commands of `petstore account`.

use std::process::Stdio;

use expect_test::expect;
use petstore::domain::Secret;
use petstore::domain::account::PasswordDigest;
use testkit::console::PASSWORD;
use testkit::{Folder, Process, Request, fields, new_pet, petstore, succeed};

#[test]
fn account_create_creates_the_database() {
    let folder = Folder::new();

    assert_eq!(folder.run("account create Ada@example.com").shown(), "exit 0\nAda@example.com\n");

    // Addresses are compared ignoring case, and shown as they were given.
    let key = folder.succeed("key create --account ADA@EXAMPLE.com --name first");
    assert!(key.starts_with("pet_live_"), "{key}");
    assert_eq!(folder.json("key list")[0]["account"], "Ada@example.com");
    folder.fails("account create ADA@Example.COM", "account ADA@Example.COM already exists");
}

#[test]
fn password_is_the_first_line_of_stdin() {
    let folder = Folder::new();
    for (command, typed) in [
        ("create Ada@example.com", "correct horse battery\nrest\n"),
        ("set-password ADA@example.com", "\u{feff}another fine password\r\n"),
    ] {
        let made = folder.run_with(&format!("account {command} --password-stdin"), typed);
        assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""), "{made:?}");
        let digest = PasswordDigest(Secret::new(folder.database().sql("SELECT password_hash FROM accounts")));
        let password = typed.trim_start_matches('\u{feff}').lines().next().unwrap();
        assert!(digest.matches(&Secret::new(password)), "{typed:?}");
    }
}

#[test]
fn too_long_path_is_named_and_leaves_nothing() {
    let folder = Folder::new();
    let deep = format!("{}d", "d/".repeat(300));
    let why = folder.run(&format!("account create ada@example.com --data-dir {deep}")).stderr;
    assert!(why.contains(" is too long for SQLite: it has "), "{why}");
    assert_eq!(folder.names("."), [""; 0]);
}

#[test]
fn password_has_12_to_128_characters_and_is_never_displayed() {
    let folder = Folder::new();
    let create = |email: &str, password: &str| {
        let line = format!("account create {email} --password-stdin --log-level trace");
        let ended = folder.run_with(&line, format!("{password}\r\n"));
        assert!(password.is_empty() || !format!("{ended:?}").contains(password), "{ended:?}");
        ended
    };

    let too_short = "exit 1\nerror: the password has 11 characters; 12 to 128 are allowed\n";
    assert_eq!(create("a@example.com", "elf letters").shown(), too_short);
    for invalid in ["", &"ä".repeat(129)] {
        assert_eq!(create("b@example.com", invalid).code, Some(1));
    }
    assert!(!folder.path("petstore-data").exists(), "an invalid password creates nothing");
    for (email, length) in [("d@example.com", 12), ("e@example.com", 128)] {
        assert_eq!(create(email, &"ä".repeat(length)).code, Some(0));
    }
}

#[test]
fn account_list_has_exactly_the_documented_fields() {
    let folder = Folder::with_account();
    folder.run_with("account create Grace@Example.com --password-stdin", PASSWORD);
    folder.succeed("account create gone@example.com");
    folder.fails(
        "account delete gone@example.com",
        "this would delete gone@example.com, revoke its keys and cancel its open orders: confirm with --yes",
    );
    folder.succeed("account delete gone@example.com --yes");
    folder.succeed("account set-role grace@example.com staff");
    folder.succeed("account suspend ADA@example.com");

    let accounts = folder.json("account list");

    assert_eq!(fields(&accounts[0]), ["id", "email", "role", "createdAt", "hasPassword", "suspendedAt"]);
    assert_eq!([&accounts[0]["hasPassword"], &accounts[1]["hasPassword"]], [false, true]);
    assert!(accounts[0]["createdAt"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());

    expect![[r#"
        ID  EMAIL              ROLE      CREATED                   PASSWORD  SUSPENDED
        1   ada@example.com    customer  ########################  no        ########################
        2   Grace@Example.com  staff     ########################  yes       -
    "#]]
    .assert_eq(&folder.table("account list", &["createdAt", "suspendedAt"]));
    folder.succeed("account resume ada@example.com");
    assert!(folder.json("account list")[0]["suspendedAt"].is_null());
    folder.fails("account suspend gone@example.com", "there is no account gone@example.com");
}

#[test]
fn delete_asks_for_confirmation_on_a_terminal() {
    let folder = Folder::with_account();
    let on_a_terminal = |answer: &str| folder.database().on_a_terminal("account delete ada@example.com", answer);

    for answer in ["", "n", "yes, please"] {
        let (code, shown) = on_a_terminal(answer);
        assert!(shown.contains("Delete ada@example.com, revoke its keys and cancel its open orders?"), "{shown}");
        assert!(code == Some(1) && shown.contains("error: nothing was changed"), "{shown}");
        assert_eq!(folder.json("account list").len(), 1);
    }
    assert_eq!(on_a_terminal("Y").0, Some(0));
    assert!(folder.json("account list").is_empty());
}

#[test]
fn address_is_changed_and_account_erased() {
    let folder = Folder::with_account();
    folder.succeed("account create ben@example.com");
    folder.fails("account set-email ada@example.com BEN@example.com", "account BEN@example.com already exists");
    folder.succeed("account set-email ada@example.com hopper@example.com");
    folder.fails("account set-email ada@example.com eve@example.com", "there is no account ada@example.com");
    folder
        .database()
        .sql("INSERT INTO messages (account_id, id, message, created_at) VALUES (1, randomblob(16), 'Hi', 1)");
    let why = "some of its messages are not sent, and nothing was changed: add --discard-messages to delete them";
    folder.fails("account erase hopper@example.com --yes", why);
    let would = "this would erase hopper@example.com, its keys and its messages, and cancel its open orders: confirm with --yes";
    folder.fails("account erase hopper@example.com --discard-messages", would);
    let (code, shown) = folder.database().on_a_terminal("account erase hopper@example.com", "n");
    assert!(code == Some(1) && shown.contains("error: nothing was changed"), "{shown}");

    expect![[r#"
        exit 0
        erased hopper@example.com: its messages, keys, sessions and stored responses are deleted, and its open orders are cancelled. Its orders stay, of account 1; the audit names it erased-1@account.invalid
    "#]]
    .assert_eq(&folder.run("account erase hopper@example.com --discard-messages --yes").shown());
    assert_eq!(folder.json("account list").len(), 1);
    assert!(folder.json("messages list").is_empty());
    folder.fails("account erase hopper@example.com", "there is no account hopper@example.com");
}

#[tokio::test]
async fn link_for_a_password_is_printed_and_never_logged() {
    let folder = Folder::with_account();
    let server = folder.serve("serve --log-requests --log-format json");
    folder.succeed("account suspend ada@example.com");
    let why = "the account ada@example.com is suspended: run `petstore account resume ada@example.com` first";
    folder.fails("account reset-link ada@example.com", why);
    folder.succeed("account resume ada@example.com");
    let link = folder.succeed(&format!("account reset-link ada@example.com --base-url http://{}/v1", server.store()));
    let path = link.trim().strip_prefix(&format!("http://{}", server.store())).unwrap();

    assert_eq!(Request::new(server.store(), "GET", path).send().await.status(), 200);

    assert_eq!(server.logged("request")["path"], "/password/pet_live_[hidden]");
    folder.succeed("account set-password ada@example.com --temporary");
    assert_eq!(folder.database().sql("SELECT password_temporary, link_until IS NULL FROM accounts"), "1|0");
    assert_eq!(Request::new(server.store(), "GET", path).send().await.status(), 404);
}

#[test]
fn orders_are_listed_newest_first_with_their_customers() {
    let folder = Folder::new();
    let keys = ["ada@example.com", "bob@example.com"].map(|email| folder.database().customer(email));
    folder.import(["Rex", "Mimi"].iter().map(|name| new_pet(name) + "\n"));
    let server = folder.serve("serve");
    for (key, pet) in keys.iter().zip(1..) {
        let place = Request::new(server.store(), "POST", "/v1/store/orders").key(key);
        assert_eq!(place.json(format!("{{\"petId\":{pet}}}")).send_blocking().status(), 201);
    }

    expect![[r#"
        ID  ANIMAL  ACCOUNT          STATUS  PLACED                    CHANGED
        2   2       bob@example.com  placed  ########################  ########################
        1   1       ada@example.com  placed  ########################  ########################
    "#]]
    .assert_eq(&folder.table("orders list", &["createdAt", "updatedAt"]));
    let listed = folder.json("orders list --account ada@example.com --status placed --limit 1");
    assert_eq!(fields(&listed[0]), ["id", "petId", "accountId", "status", "createdAt", "updatedAt", "account"]);
    assert_eq!((listed.len(), &listed[0]["account"]), (1, &"ada@example.com".into()));
    assert_eq!(folder.succeed("orders list --status cancelled --json"), "[]\n");
    assert_eq!(folder.json("orders list --since 1d --all").len(), 2);
}

#[test]
fn all_orders_are_listed_beyond_a_page() {
    let folder = Folder::new();
    folder.database().customer("ada@example.com");
    folder.import((0..205).map(|number| new_pet(&number.to_string()) + "\n"));
    folder
        .database()
        .sql("INSERT INTO orders (account_id, pet_id, status, created_at, updated_at) SELECT 1, id, 0, 1, 1 FROM pets");
    let ids: Vec<_> = folder.json("orders list --all").iter().map(|order| order["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, (1..=205).rev().collect::<Vec<_>>());
    assert!(folder.json("orders list --all --since 1d").is_empty(), "they are of 1970");
    for (limit, listed, told) in [
        ("--limit 150", 151, "only the newest 150 orders: --all lists all\n"),
        ("--limit 200", 201, "only the newest 200 orders: --all lists all\n"),
        ("", 21, "only the newest 20 orders: --all lists all\n"),
        ("--limit 205", 206, ""),
        ("--since 1d", 1, ""),
    ] {
        let ended = folder.run(&format!("orders list {limit}"));
        assert_eq!((ended.stdout.lines().count(), &*ended.stderr), (listed, told), "{limit}");
    }
    let ended = folder.run("orders list --limit 204 --json");
    let told = "only the newest 204 orders: --all lists all\n";
    assert_eq!((ended.stdout.matches("petId").count(), &*ended.stderr), (204, told));
    assert_eq!(folder.succeed("orders list --all --status delivered").lines().count(), 1);
}

#[test]
fn export_has_what_the_store_knows_of_the_account_alone() {
    let folder = Folder::new();
    let [ada, ben] = ["ada@example.com", "ben@example.com"].map(|email| folder.database().customer(email));
    folder.import((0..103).map(|number| new_pet(&number.to_string()) + "\n"));
    folder.database().sql(
        "INSERT INTO orders (account_id, pet_id, status, created_at, updated_at)
         SELECT CASE WHEN id > 102 THEN 2 ELSE 1 END, id, 0, 1, 1 FROM pets",
    );
    folder.database().sql("UPDATE accounts SET role = 1 WHERE id = 2");
    let server = folder.serve("serve");
    let approve =
        Request::new(server.store(), "POST", "/v1/store/orders/1/approve").key(&ben).header("x-request-id", "bens");
    assert_eq!(approve.send_blocking().status(), 200);
    for key in [&ada, &ben] {
        let send = Request::new(server.address("messages"), "POST", "/v1/messages").key(key);
        assert_eq!(send.json(r#"{"message":"Hello"}"#).send_blocking().status(), 202);
    }

    folder.database().sql("INSERT INTO sessions VALUES (zeroblob(32), 1, 1, 2), (randomblob(32), 2, 1, 2)");

    let exported: serde_json::Value = serde_json::from_str(&folder.succeed("account export ada@example.com")).unwrap();

    assert_eq!(fields(&exported), ["account", "sessions", "keys", "orders", "messages", "audit"]);
    assert_eq!(exported["account"]["email"], "ada@example.com");
    let count = |part: &str| exported[part].as_array().unwrap().len();
    assert_eq!(["sessions", "keys", "orders", "messages", "audit"].map(count), [1, 1, 102, 1, 3]);
    assert_eq!(fields(&exported["sessions"][0]), ["createdAt", "lastUsedAt"]);
    let text = exported.to_string();
    let row = &exported["audit"][2];
    assert_eq!([&row["actor"], &row["subject"]], ["[hidden]", "order 1 of ada@example.com"]);
    assert!(
        !text.contains("ben@example.com") && !text.contains("bens") && !text.contains(&ada["pet_live_".len()..40]),
        "{text}"
    );
    folder.fails("account export eve@example.com", "there is no account eve@example.com");

    for line in ["delete ada@example.com --yes", "create ada@example.com", "set-email ada@example.com eve@example.com"]
    {
        folder.succeed(&format!("account {line}"));
    }
    let exported: serde_json::Value = serde_json::from_str(&folder.succeed("account export eve@example.com")).unwrap();
    let subjects: Vec<_> = exported["audit"].as_array().unwrap().iter().map(|row| &row["subject"]).collect();
    assert_eq!(subjects, ["eve@example.com (customer)", "ada@example.com to eve@example.com"]);
}

#[test]
fn output_that_is_shown_once_or_incomplete_is_a_failure() {
    let folder = Folder::with_account();
    for (line, why) in [
        (
            "account set-password",
            "the password was changed, but cannot be shown: Broken pipe (os error 32); set another one",
        ),
        ("account reset-link", "the link was made, but cannot be shown: Broken pipe (os error 32); make another one"),
        ("account export", "the reader closed the pipe before the end"),
    ] {
        let closed = Stdio::from(std::io::pipe().unwrap().1);
        let ended = Process::start_with_stdout(&mut folder.command(&format!("{line} ada@example.com")), closed).end();
        assert_eq!((ended.code, ended.stderr), (Some(1), format!("error: {why}\n")), "{line}");
    }
}

#[test]
fn orders_are_changed_each_on_its_own() {
    let folder = Folder::new();
    let key = folder.database().customer("ada@example.com");
    folder.import(["Rex", "Mimi"].iter().map(|name| new_pet(name) + "\n"));
    let server = folder.serve("serve");
    for pet in 1..=2 {
        let place = Request::new(server.store(), "POST", "/v1/store/orders").key(&key);
        assert_eq!(place.json(format!("{{\"petId\":{pet}}}")).send_blocking().status(), 201);
    }

    expect![[r#"
        exit 0
        order 1 is approved
        order 2 is approved
    "#]]
    .assert_eq(&folder.run("orders approve 1 2").shown());
    expect![[r#"
        exit 1
        order 1 is delivered
        error: order 7 not changed: it does not exist
        error: 1 of 2 orders not changed
    "#]]
    .assert_eq(&folder.run("orders deliver 1 7").shown());
    expect![[r#"
        exit 1
        error: order 1 not changed: it is delivered
        order 2 is cancelled
        error: 1 of 2 orders not changed
    "#]]
    .assert_eq(&folder.run("orders cancel 1 2").shown());
    let pets = Request::new(server.store(), "GET", "/v1/pets").key(&key).send_blocking().json();
    assert_eq!((&pets[0]["status"], &pets[1]["status"]), (&"sold".into(), &"available".into()));
    let audit = folder.json("audit");
    let last = |field: &str| audit[0][field].as_str().unwrap().to_owned();
    assert_eq!([last("action"), last("subject")], ["order.cancel", "order 2 of ada@example.com"]);
}

/// Runs a command on a terminal, and types a line once it asks for it. Prints what the terminal shows.
const TYPE: &str = r#"
import os, pty, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
shown = b""
while b"Password: " not in shown:
    shown += os.read(terminal, 1024)
os.write(terminal, sys.argv[1].encode())
try:
    while piece := os.read(terminal, 1024):
        shown += piece
except OSError:
    pass  # The end.
print(shown.decode())
print("shows" if termios.tcgetattr(terminal)[3] & termios.ECHO else "hides")
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

#[test]
fn terminal_does_not_show_a_password() {
    let folder = Folder::new();
    let typed = |keys: &str, email: &str| {
        let mut python = folder.program("python3");
        python.args(["-c", TYPE, keys, petstore(), "account", "create", email, "--password-stdin"]);
        succeed(&mut python)
    };
    let shown = typed("correct horse battery\n", "ada@example.com");
    assert!(shown.starts_with("Password: ") && shown.ends_with("\nshows\n0\n") && !shown.contains("horse"), "{shown}");
    let digest = PasswordDigest(Secret::new(folder.database().sql("SELECT password_hash FROM accounts")));
    assert!(digest.matches(&Secret::new("correct horse battery")));

    for (key, status) in [("\u{3}", 130), ("\u{1c}", 131)] {
        let interrupted = typed(key, "grace@example.com");
        assert!(interrupted.ends_with(&format!("\nshows\n{status}\n")), "{interrupted}");
    }
}
