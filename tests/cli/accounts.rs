//! `account create`, `list`, `set-password` and `delete`.

use expect_test::expect;
use testkit::console::PASSWORD;
use testkit::{ConsoleUser, Folder, Request, fields};

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
fn password_is_read_from_stdin_and_stored_hashed() {
    let folder = Folder::new();

    let made = folder.run_with("account create ada@example.com --password-stdin", "correct horse battery\nrest\n");

    assert_eq!(made.code, Some(0), "{made:?}");
    let digest = folder.database().sql("SELECT password_hash FROM accounts");
    assert!(digest.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{digest}");
    let digest = petstore::domain::account::PasswordDigest(digest);
    let password = petstore::domain::Secret::new("correct horse battery");
    assert_eq!(digest.matches(&password, &mut Default::default()), Ok(true));
}

#[test]
fn byte_order_mark_is_not_part_of_the_password() {
    let folder = Folder::new();
    folder.run_with("account create ada@example.com --password-stdin", "\u{feff}correct horse battery\r\n");
    let digest = petstore::domain::account::PasswordDigest(folder.database().sql("SELECT password_hash FROM accounts"));
    let password = petstore::domain::Secret::new("correct horse battery");
    assert_eq!(digest.matches(&password, &mut Default::default()), Ok(true));
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
fn password_has_12_to_128_characters() {
    let folder = Folder::new();
    let create = |email: &str, password: &str| {
        folder.run_with(&format!("account create {email} --password-stdin"), format!("{password}\r\n"))
    };

    let too_short = "exit 1\nerror: the password has 11 characters; 12 to 128 are allowed\n";
    assert_eq!(create("a@example.com", "elf letters").shown(), too_short);
    assert_eq!(create("b@example.com", &"ä".repeat(129)).code, Some(1));
    assert_eq!(create("c@example.com", "").code, Some(1));
    assert!(!folder.path("petstore-data").exists(), "an invalid password creates nothing");
    assert_eq!(create("d@example.com", &"ä".repeat(12)).code, Some(0));
    assert_eq!(create("e@example.com", &"ä".repeat(128)).code, Some(0));
}

#[test]
fn password_is_never_displayed() {
    let folder = Folder::new();
    let line = "account create ada@example.com --password-stdin --log-level trace";
    let refused = folder.run_with(line, "short-pass\n");
    let made = folder.run_with(line, "a-password-long-enough\n");
    for ended in [refused, made] {
        assert!(!format!("{ended:?}").contains("-pass"), "{ended:?}");
    }
}

#[test]
fn account_list_has_exactly_the_documented_fields() {
    let folder = Folder::with_account();
    folder.run_with("account create Grace@Example.com --password-stdin", PASSWORD);
    folder.succeed("account create gone@example.com");
    folder.succeed("account delete gone@example.com");
    folder.succeed("account set-role grace@example.com staff");

    let accounts = folder.json("account list");

    assert_eq!(fields(&accounts[0]), ["id", "email", "role", "createdAt", "hasPassword"]);
    let shown: Vec<_> = accounts.iter().map(|one| (one["email"].as_str().unwrap(), &one["hasPassword"])).collect();
    assert_eq!(shown, [("ada@example.com", &false.into()), ("Grace@Example.com", &true.into())]);
    assert!(accounts[0]["createdAt"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());

    expect![[r#"
        ID  EMAIL              ROLE      CREATED                   PASSWORD
        1   ada@example.com    customer  ########################  no
        2   Grace@Example.com  staff     ########################  yes
    "#]]
    .assert_eq(&folder.table("account list", &["createdAt"]));
}

#[tokio::test]
async fn set_password_ends_the_sessions_of_the_account() {
    let folder = Folder::new();
    assert_eq!(folder.run_with("account create ada@example.com --password-stdin", PASSWORD).code, Some(0));
    let server = folder.serve("serve");
    let mut ada = ConsoleUser::new(server.store());
    ada.sign_in("ada@example.com", PASSWORD).await;

    let set = folder.run_with("account set-password ADA@example.com --password-stdin", "another fine password\n");

    assert_eq!((set.code, set.stdout.as_str()), (Some(0), ""), "{set:?}");
    assert!(!ada.is_signed_in().await);
    let old = ada.post("/sign-in", &[("email", "ada@example.com"), ("password", PASSWORD)]).await;
    assert_eq!(old.status(), 422);
    ada.sign_in("ada@example.com", "another fine password").await;
}

#[test]
fn delete_asks_for_confirmation_on_a_terminal() {
    let folder = Folder::with_account();
    let on_a_terminal = |answer: &str| folder.database().on_a_terminal("account delete ada@example.com", answer);

    for answer in ["", "n", "yes, please"] {
        let (code, shown) = on_a_terminal(answer);
        assert!(shown.contains("Delete ada@example.com, revoke its keys and cancel its open orders?"), "{shown}");
        assert!(code == Some(1) && shown.contains("error: nothing was deleted"), "{shown}");
        assert_eq!(folder.json("account list").len(), 1);
    }
    assert_eq!(on_a_terminal("Y").0, Some(0));
    assert!(folder.json("account list").is_empty());
}

#[test]
fn changes_of_an_unknown_account_fail() {
    let folder = Folder::with_account();
    for change in ["set-password bob@example.com", "set-role bob@example.com staff", "delete bob@example.com"] {
        folder.fails(&format!("account {change}"), "there is no account bob@example.com");
    }
}

#[tokio::test]
async fn orders_are_listed_newest_first_with_their_customers() {
    let folder = Folder::with_account();
    folder.succeed("account create bob@example.com");
    let bobs = folder.succeed("key create --account bob@example.com --name test").trim_end().to_owned();
    let key = folder.key();
    folder.write("pets", "{\"name\":\"Rex\",\"categoryId\":1}\n{\"name\":\"Mimi\",\"categoryId\":1}\n");
    folder.succeed("pets import pets");
    let server = folder.serve("serve");
    for (key, body) in [(&key, r#"{"petId":1}"#), (&bobs, r#"{"petId":2}"#)] {
        let placed = Request::new(server.store(), "POST", "/v1/store/orders").key(key).json(body).send().await;
        assert_eq!(placed.status(), 201);
    }

    let listed = folder.json("orders list");

    let customers: Vec<_> = listed.iter().map(|order| &order["account"]).collect();
    assert_eq!(customers, ["bob@example.com", "ada@example.com"]);
    assert_eq!(fields(&listed[0]), ["id", "petId", "accountId", "status", "createdAt", "updatedAt", "account"]);
    let of_ada = folder.succeed("orders list --account ada@example.com --status placed --limit 1");
    assert!(of_ada.starts_with("ID  ANIMAL  ACCOUNT") && of_ada.contains("1   1       ada@example.com"), "{of_ada}");
    assert_eq!(folder.succeed("orders list --status cancelled --json"), "[]\n");
}
