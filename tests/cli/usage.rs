//! Exit status 2 and a hint after wrong usage, 1 and one line with the reason after a failure.

use expect_test::expect;
use std::net::TcpListener;
use testkit::{Folder, Signal};

const NO_DATABASE: &str = "there is no database in petstore-data: mount its volume, or let `petstore serve` or `petstore \
    quickstart` create one without --existing-only";

fn usage(line: &str) -> String {
    let folder = Folder::new();
    let shown = folder.run(line).usage();
    assert!(!folder.path("petstore-data").exists(), "wrong usage leaves nothing behind");
    shown
}

#[test]
fn misspelt_command_or_flag_suggests_the_nearest() {
    expect![[r#"
        exit 2
        error: unrecognized subcommand 'serv'

          tip: a similar subcommand exists: 'serve'

        Usage: petstore <COMMAND>

        For more information, try '--help'.
    "#]]
    .assert_eq(&usage("serv"));
    expect![[r#"
        exit 2
        error: unexpected argument '--lisen' found

          tip: a similar argument exists: '--listen'

        Usage: petstore serve --listen <ADDRESS>

        For more information, try '--help'.
    "#]]
    .assert_eq(&usage("serve --lisen 127.0.0.1:0"));
}

#[test]
fn missing_command_is_wrong_usage_with_help() {
    for (line, help) in [("", "An animal store"), ("key", "Create, list")] {
        assert!(usage(line).starts_with(&format!("exit 2\n{help}")), "{}", usage(line));
    }
}

#[test]
fn value_out_of_range_names_the_range() {
    for (line, wanted) in [
        ("serve --listen 8080", "an address is an IP address or localhost, and a port, for instance 127.0.0.1:8080"),
        ("serve --ops-listen example.com:8080", "an address is an IP address or localhost, and a port"),
        ("serve --listeners shop", "[possible values: store, messages, ops]"),
        ("serve --base-url https://example.com", "a base URL is http:// or https://, a host and an optional path, and"),
        ("serve --cors-origin example.com", "an origin is a scheme, a host and an optional port, without wildcards"),
        ("serve --cors-origin https://*.example.com", "without wildcards"),
        ("ephemeral --", "there is no COMMAND after --"),
        ("serve --security-contact a@b.example", "a contact is a URL with mailto:, tel: or https:, for instance"),
        ("serve --security-contact http://b.example", "a contact is a URL with mailto:, tel: or https:"),
        ("serve --security-contact https://", "a contact is a URL with mailto:, tel: or https:"),
        ("serve --max-connections 0", "0 is not in 1.."),
        ("serve --drain-delay 5", "a duration is a number and s, m, h or d, for instance 90d"),
        ("serve --deployment live", "[possible values: production, staging]"),
        ("key create --account ada --name x", "must be an e-mail address, for instance ada@example.com"),
        ("key create --account ada@example.com --name=", "has 0 characters; 1 to 100 are allowed"),
        ("key create --account a@b --name x --expires-in 3w", "a duration is a number and s, m, h or d"),
        ("key create --account a@b --name x --expires-in 0s", "it must be at least 1s"),
        ("key create --name x", "--account <EMAIL>"),
        ("key revoke first", "a key id is a number: see `petstore key list`"),
        ("key revoke", "<ID>"),
        ("key rotate 1 --overlap soon", "a duration is a number and s, m, h or d"),
        ("account create nobody", "must be an e-mail address"),
        ("completions csh", "[possible values: bash, elvish, fish, powershell, zsh]"),
        ("pets import", "<FILE>"),
        ("migrate status --data-dir=", "--data-dir <DIR>"),
    ] {
        let shown = usage(line);
        assert!(shown.starts_with("exit 2\nerror: ") && shown.contains(wanted), "{line}: {shown}");
    }
}

#[test]
fn misplaced_address_does_not_print_its_password() {
    let folder = Folder::with_account();
    let mut told = String::new();
    for line in [
        "serve URL",
        "move URL",
        "URL",
        "key list --databse-url URL",
        "key list --databse-url=URL",
        "serve --config URL",
        "restore URL",
        "backup URL",
        "pets import URL",
        "pets export URL",
        "reset --pets URL",
        "key list --data-dir URL",
        "config check --tls-cert URL --tls-key URL",
        "account create URL",
        "account set-password URL",
        "account set-role URL staff",
        "account delete URL",
        "key create --account URL --name x",
        "serve --base-url https://ada:s3cret@example.com/v1",
        "serve --listen s3cret@db",
    ] {
        let shown = folder.run(&line.replace("URL", "postgres://ada:s3cret@db/shop")).shown();
        assert!(!shown.contains("s3cret"), "{line}: {shown}");
        told += &format!("{line}: {}\n", shown.lines().take(2).collect::<Vec<_>>().join(": "));
    }
    expect![[r#"
        serve URL: exit 2: error: unexpected argument 'postgres://ada:[hidden]@db/shop' found
        move URL: exit 2: error: unexpected argument 'postgres://ada:[hidden]@db/shop' found
        URL: exit 2: error: unrecognized subcommand 'postgres://ada:[hidden]@db/shop'
        key list --databse-url URL: exit 2: error: unexpected argument '--databse-url' found
        key list --databse-url=URL: exit 2: error: unexpected argument '--databse-url' found
        serve --config URL: exit 2: error: postgres://ada:[hidden]@db/shop: No such file or directory (os error 2)
        restore URL: exit 1: error: postgres://ada:[hidden]@db/shop: No such file or directory (os error 2)
        backup URL: exit 1: error: postgres://ada:[hidden]@db/shop: No such file or directory (os error 2)
        pets import URL: exit 1: error: postgres://ada:[hidden]@db/shop: No such file or directory (os error 2)
        pets export URL: exit 1: error: postgres://ada:[hidden]@db/shop: No such file or directory (os error 2)
        reset --pets URL: exit 1: error: postgres://ada:[hidden]@db/shop: No such file or directory (os error 2)
        key list --data-dir URL: exit 1: error: there is no database in postgres://ada:[hidden]@db/shop: mount its volume, or let `petstore serve` or `petstore quickstart` create one without --existing-only
        config check --tls-cert URL --tls-key URL: exit 1: error: postgres://ada:[hidden]@db/shop: No such file or directory (os error 2)
        account create URL: exit 2: error: invalid value 'postgres://ada:[hidden]@db/shop' for '<EMAIL>': must be an e-mail address, for instance ada@example.com, not a URL
        account set-password URL: exit 1: error: there is no account postgres://ada:[hidden]@db/shop
        account set-role URL staff: exit 1: error: there is no account postgres://ada:[hidden]@db/shop
        account delete URL: exit 1: error: there is no account postgres://ada:[hidden]@db/shop
        key create --account URL --name x: exit 1: error: there is no account postgres://ada:[hidden]@db/shop
        serve --base-url https://ada:s3cret@example.com/v1: exit 2: error: invalid value 'https://ada:[hidden]@example.com/v1' for '--base-url <URL>': a base URL is http:// or https://, a host and an optional path, and ends in /v1
        serve --listen s3cret@db: exit 2: error: invalid value '[hidden]@db' for '--listen <ADDRESS>': an address is an IP address or localhost, and a port, for instance 127.0.0.1:8080, [::1]:8080 or localhost:8080; :8080 means all IPv4 addresses
    "#]].assert_eq(&told);
}

#[test]
fn missing_database_is_a_failure_and_not_created() {
    let folder = Folder::new();
    for line in ["key list", "key list --json", "key revoke 1", "key rotate 1", "pets export", "migrate status"] {
        let ended = folder.run(line);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{line}");
        assert!(ended.stderr.contains("petstore-data"), "{line}: {}", ended.stderr);
    }
    folder.fails("key list", NO_DATABASE);
    for line in ["account create grace@example.com", "pets import -", "migrate"] {
        folder.fails(&format!("{line} --existing-only"), NO_DATABASE);
    }
    folder.fails_to_serve("serve --existing-only", NO_DATABASE);
    folder.fails("config check --existing-only", NO_DATABASE);
    assert!(!folder.path("petstore-data").exists());

    folder.succeed("config check");
    folder.succeed("migrate --existing-only=false");
    folder.serve("serve --existing-only").end_by(Signal::TERM);
    folder.succeed("config check --existing-only");

    std::fs::remove_file(folder.path("petstore-data/petstore.db")).unwrap();
    let checked = folder.run("config check").shown();
    assert!(checked.contains("petstore.db: it was removed or moved away"), "{checked}");
}

#[test]
fn services_write_a_log_and_other_commands_plain_text() {
    let folder = Folder::new();
    folder.write("file", "");
    let why = "cannot open the database in file/data: file/data: Not a directory (os error 20)";
    for line in ["migrate", "pets import -", "key list --log-format json"] {
        folder.fails(&format!("{line} --data-dir file/data"), why);
    }
    for line in
        ["serve --listeners ops --ops-listen 127.0.0.1:0", "quickstart --listeners ops --ops-listen 127.0.0.1:0"]
    {
        folder.fails_to_serve(&format!("{line} --data-dir file/data"), why);
        let ended = folder.run(&format!("{line} --data-dir file/data --log-format human"));
        assert!(ended.stderr.contains("ERROR") && ended.stderr.ends_with(&format!("{why}\n")), "{line}: {ended:?}");
    }
}

#[test]
fn database_lock_or_backup_that_is_no_file_is_rejected() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("petstore-data")).unwrap();
    assert!(folder.program("mkfifo").arg("petstore-data/petstore.db").status().unwrap().success());
    for line in ["key list", "migrate", "migrate status", "backup there.db", "restore there.db"] {
        if line == "restore there.db" {
            assert!(folder.program("mkfifo").arg("there.db").status().unwrap().success());
        }
        let refused = folder.run(line).shown();
        assert!(
            refused.starts_with("exit 1\nerror: ") && refused.ends_with(" is not a regular file\n"),
            "{line}: {refused}"
        );
    }
    folder.fails_to_serve("serve --listen 127.0.0.1:0", "petstore-data/petstore.db is not a regular file");

    // Without the lock, two commands could replace the database at once.
    let folder = Folder::with_account();
    std::fs::remove_file(folder.path("petstore-data/petstore.lock")).unwrap();
    std::fs::create_dir(folder.path("petstore-data/petstore.lock")).unwrap();
    folder.fails("key list", "petstore-data/petstore.lock is not a regular file");
}

/// The commands would otherwise wait for ever.
#[test]
fn configuration_from_a_pipe_without_a_writer_is_rejected() {
    let folder = Folder::new();
    assert!(folder.program("mkfifo").arg("pipe").status().unwrap().success());
    for flags in ["--config pipe", "--tls-cert pipe --tls-key pipe"] {
        let refused = folder.run(&format!("config check {flags}"));
        assert!(refused.stderr.ends_with("pipe: cannot be read within 5s: check its mount or pipe\n"), "{refused:?}");
    }
}

#[test]
fn config_check_does_not_wait_for_a_silent_database() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://ada@{}/shop", silent.local_addr().unwrap());
    let ended = Folder::new().run(&format!("config check --database-url {url}")).shown();
    assert_eq!(ended, format!("exit 1\nerror: cannot open the database {url}: it did not respond within 10s\n"));
}

#[test]
fn file_of_another_program_is_rejected_unchanged() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("petstore-data")).unwrap();
    folder.write("petstore-data/petstore.db", "");
    folder.fails("key list", NO_DATABASE);
    assert_eq!(folder.read("petstore-data/petstore.db"), "");

    let file = folder.path("petstore-data/petstore.db");
    let assert_rejected = |why: &str| {
        let before = std::fs::read(&file).unwrap();
        let told = format!("petstore-data/petstore.db: {why}");
        folder.fails("key list", &told);
        folder.fails("migrate", &told);
        folder.fails_to_serve("serve --listen 127.0.0.1:0", &told);
        let checked = folder.run("config check --listen 127.0.0.1:0").shown();
        assert!(checked.starts_with("exit 1\n") && checked.contains(why), "{checked}");
        assert!(std::fs::read(&file).unwrap() == before);
    };
    rusqlite::Connection::open(&file).unwrap().execute_batch("CREATE TABLE customers (id INTEGER)").unwrap();
    assert_rejected("this is not a petstore database");
    std::fs::write(&file, "This is not a database, although it is long enough.").unwrap();
    assert_rejected("file is not a database");
}
