//! `account create`.

use expect_test::expect;

use crate::process::Folder;

#[test]
fn an_account_is_made_with_its_database() {
    let folder = Folder::new();

    expect![[r#"
        exit 0
        Ada@example.com
    "#]]
    .assert_eq(&folder.run("account create Ada@example.com").shown());

    // The command line can use it at once, however the address is written.
    let key = folder.succeed("key create --account ADA@EXAMPLE.com --name first");
    assert!(key.starts_with("pet_live_"), "{key}");
    assert_eq!(folder.keys()[0]["account"], "Ada@example.com", "the address is shown as it was given");
}

#[test]
fn an_address_that_is_taken_is_refused_without_regard_to_case() {
    let folder = Folder::with_account();

    expect![[r#"
        exit 1
        error: there is an account ADA@Example.COM already
    "#]]
    .assert_eq(&folder.run("account create ADA@Example.COM").shown());
}

#[test]
fn a_password_comes_from_the_first_line_of_stdin_and_only_its_hash_is_kept() {
    let folder = Folder::new();

    let made = folder.run_with("account create ada@example.com --password-stdin", "correct horse battery\nrest\n");

    assert_eq!(made.code, Some(0), "{made:?}");
    let database = rusqlite::Connection::open(folder.path("petstore-data/petstore.db")).unwrap();
    let digest: String = database.query_row("SELECT password_hash FROM accounts", [], |row| row.get(0)).unwrap();
    assert!(digest.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{digest}");
    let digest = petstore::domain::account::PasswordDigest(digest);
    assert!(digest.matches(&petstore::domain::Secret::new("correct horse battery"), &mut Default::default()));
}

#[test]
fn without_a_password_none_is_kept() {
    let folder = Folder::with_account();

    let database = rusqlite::Connection::open(folder.path("petstore-data/petstore.db")).unwrap();
    let digest: Option<String> =
        database.query_row("SELECT password_hash FROM accounts", [], |row| row.get(0)).unwrap();
    assert_eq!(digest, None);
}

#[test]
fn a_password_has_12_to_128_characters() {
    let folder = Folder::new();
    let create = |email: &str, password: &str| {
        folder.run_with(&format!("account create {email} --password-stdin"), format!("{password}\r\n"))
    };

    expect![[r#"
        exit 1
        error: the password has 11 characters; 12 to 128 are allowed
    "#]]
    .assert_eq(&create("a@example.com", "elf letters").shown());
    assert_eq!(create("b@example.com", &"ä".repeat(129)).code, Some(1));
    assert_eq!(create("c@example.com", "").code, Some(1));
    assert!(!folder.path("petstore-data").exists(), "a refused password leaves nothing behind");
    assert_eq!(create("d@example.com", &"ä".repeat(12)).code, Some(0));
    assert_eq!(create("e@example.com", &"ä".repeat(128)).code, Some(0));
}

#[test]
fn a_password_never_shows() {
    let folder = Folder::new();
    let line = "account create ada@example.com --password-stdin --log-level trace";
    let refused = folder.run_with(line, "short-pass\n");
    let made = folder.run_with(line, "a-password-long-enough\n");
    for ended in [refused, made] {
        assert!(!format!("{ended:?}").contains("-pass"), "{ended:?}");
    }
}
