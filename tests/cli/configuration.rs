//! Settings: flags over the environment over the file over defaults; `config show`.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;

use expect_test::expect;
use testkit::{Folder, Process};

#[test]
fn flag_overrides_environment_overrides_file() {
    let folder = Folder::new();
    folder.write(
        "petstore.toml",
        r#"
        listen = "127.0.0.1:1001"
        messages-listen = "127.0.0.1:1002"
        ops-listen = "127.0.0.1:1003"
        cors-origin = ["https://a.example", "https://b.example"]
        max-connections = 9
        "#,
    );
    let mut command = folder.command("config show --listen 127.0.0.1:3001 --deployment staging");
    command.envs([("PETSTORE_CONFIG", "petstore.toml"), ("PETSTORE_BASE_URL", "https://example.com/v1")]);
    command.envs([("PETSTORE_LISTEN", "127.0.0.1:2001"), ("PETSTORE_MESSAGES_LISTEN", "127.0.0.1:2002")]);

    let shown = Process::start(&mut command).end().stdout;

    let is_set = |line: &&str| !line.ends_with(" # default") && !line.starts_with("# ");
    let set = shown.lines().filter(is_set).collect::<Vec<_>>().join("\n");
    expect![[r#"
        listen = "127.0.0.1:3001" # flag
        messages-listen = "127.0.0.1:2002" # environment
        ops-listen = "127.0.0.1:1003" # file
        base-url = "https://example.com/v1" # environment
        cors-origin = ["https://a.example", "https://b.example"] # file
        max-connections = "9" # file
        deployment = "staging" # flag"#]]
    .assert_eq(&set);
}

/// A value for each setting, none its default.
const VALUES: &str = "\
    listen=127.0.0.1:1 messages-listen=127.0.0.1:2 ops-listen=[::1]:3 listeners=ops \
    base-url=https://a.example/v1 messages-base-url=https://b.example/v1 staging-base-url=https://c.example/v1 \
    cors-origin=https://d.example rate-limit=600/min registration=closed \
    security-contact=https://e.example/report simulation=off trusted-proxy=10.0.0.0/8 tls-cert=cert.pem \
    tls-key=key.pem insecure=true max-connections=7 drain-delay=5s backup-every=2h backup-keep=3 backup-dir=kept \
    relay=https://shop.example/hook relay-secret-file=secrets relay-allow-plaintext=true relay-retention=30d \
    audit-retention=90d log-requests=true data-dir=elsewhere database-url=postgres://db:5432/shop \
    require-standbys=true database-timeout=0.5s deployment=staging existing-only=true log-level=warn log-format=json";

#[test]
fn settings_have_a_flag_a_variable_and_a_key() {
    let folder = Folder::new();
    let values: Vec<_> = VALUES.split(' ').map(|setting| setting.split_once('=').unwrap()).collect();
    let shown = folder.succeed("config show");
    let known = shown.lines().map(|line| line.trim_start_matches("# ").split(' ').next().unwrap());
    assert!(known.eq(values.iter().map(|(name, _)| *name)), "every setting is listed: {shown}");
    for line in [
        "listen = \"127.0.0.1:8080\" # default",
        "listeners = [\"store\", \"messages\", \"ops\"] # default",
        "# base-url is not set",
        "# deployment is not set: a new database is a production one",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }

    let show = |source: &str, command: &mut std::process::Command| {
        let shown = Process::start(command).end();
        assert_eq!(shown.code, Some(0), "{shown:?}");
        for (name, value) in &values {
            let line = shown.stdout.lines().find(|line| line.starts_with(&format!("{name} = "))).unwrap_or("missing");
            assert!(line.contains(&format!("\"{value}\"")) && line.ends_with(&format!("# {source}")), "{line}");
        }
    };
    show("flag", folder.command("config show").args(VALUES.split(' ').map(|setting| format!("--{setting}"))));
    let variable = |name: &str| format!("PETSTORE_{}", name.replace('-', "_").to_uppercase());
    show("environment", folder.command("config show").envs(values.iter().map(|(name, value)| (variable(name), value))));
    folder.write(
        "petstore.toml",
        values.iter().map(|(name, value)| format!("{name} = \"{value}\"\n")).collect::<String>(),
    );
    show("file", &mut folder.command("config show --config petstore.toml"));
}

#[test]
fn config_show_prints_a_valid_file() {
    let folder = Folder::new();
    let flags = "--listeners ops,store --cors-origin https://a.example --drain-delay 5m --max-connections 3";
    let shown = folder.succeed(&format!("config show {flags}"));
    folder.write("petstore.toml", &shown);

    let again = folder.succeed("config show --config petstore.toml");

    let without_sources = |shown: &str| -> String {
        shown.lines().map(|line| format!("{}\n", line.rsplit_once(" # ").map_or(line, |(value, _)| value))).collect()
    };
    assert_eq!(without_sources(&again), without_sources(&shown));
    assert!(again.contains("drain-delay = \"5m\" # file\n"));
}

#[test]
fn error_in_the_file_names_the_file() {
    let folder = Folder::new();
    let mut shown = folder.run("serve --config petstore.toml").usage();
    for content in [
        "mesages_listen = \"127.0.0.1:0\"",
        "listen = 8080",
        "listeners = [\"shop\"]",
        "[listen]\nport = 8080",
        "listen = [\"127.0.0.1:1\", \"127.0.0.1:2\"]",
        "listeners = [\"store\"]\nlisten: 127.0.0.1:8080",
    ] {
        folder.write("petstore.toml", content);
        shown += &folder.run("serve --config petstore.toml").usage();
    }
    expect![[r#"
        exit 2
        error: petstore.toml: No such file or directory (os error 2)
        exit 2
        error: petstore.toml: there is no setting `mesages_listen`; did you mean `messages-listen`?
        exit 2
        error: petstore.toml: listen: invalid value '8080': an address is an IP address or localhost, and a port, for instance 127.0.0.1:8080, [::1]:8080 or localhost:8080; :8080 means all IPv4 addresses
        exit 2
        error: petstore.toml: listeners: invalid value 'shop'
          [possible values: store, messages, ops]
        exit 2
        error: petstore.toml: `listen` must be a string, a number or a list of them
        exit 2
        error: petstore.toml: `listen` takes one value, not a list
        exit 2
        error: petstore.toml: line 2 is not TOML: key with no value, expected `=`
    "#]]
    .assert_eq(&shown);
    assert!(!folder.path("petstore-data").exists());
}

#[test]
fn error_for_an_invalid_value_names_its_variable() {
    let folder = Folder::new();
    let refused = |line: &str, variable: &str, value: &str| {
        Process::start(folder.command(line).env(variable, value)).end().usage()
    };
    let shown = [
        refused("serve", "PETSTORE_LOG_LEVEL", "loud"),
        refused("healthcheck", "PETSTORE_OPS_LISTEN", "8082"),
        refused("key list", "PETSTORE_DATABASE_URL", "mysql://ada:s3cret@db/shop"),
        refused("serve", "PETSTORE_BASE_URL", "https://ada:s3cret@example.com/v1"),
        refused("key list", "PETSTORE_DATA_DIR", ""),
        refused("key list", "PETSTORE_DATA_DIR", "'/srv/petstore'"),
        refused("serve", "PETSTORE_DEPLOYMENT", "staging\r"),
        Process::start(folder.command("serve").env("PETSTORE_BASE_URL", OsStr::from_bytes(b"\xff"))).end().usage(),
    ];
    expect![[r#"
        exit 2
        error: PETSTORE_LOG_LEVEL: invalid value 'loud'
          [possible values: error, warn, info, debug, trace]
        exit 2
        error: PETSTORE_OPS_LISTEN: invalid value '8082': an address is an IP address or localhost, and a port, for instance 127.0.0.1:8080, [::1]:8080 or localhost:8080; :8080 means all IPv4 addresses
        exit 2
        error: PETSTORE_DATABASE_URL: the database URL is not postgres://USER:PASSWORD@HOST:PORT/DATABASE (separate several HOST:PORT by commas; percent-encode special characters, as in %40)
        exit 2
        error: PETSTORE_BASE_URL: invalid value 'https://ada:[hidden]@example.com/v1': a base URL is http:// or https://, a host and an optional path, and ends in /v1
        exit 2
        error: PETSTORE_DATA_DIR: a value is required but none was supplied
        exit 2
        error: PETSTORE_DATA_DIR: invalid value ''/srv/petstore'': give it without quotes, ~/ and CR: no shell has removed them
        exit 2
        error: PETSTORE_DEPLOYMENT: invalid value 'staging\r'
          [possible values: production, staging]

          tip: a similar value exists: 'staging'
        exit 2
        error: PETSTORE_BASE_URL is not UTF-8
    "#]]
    .assert_eq(&shown.concat());

    // A flag overrides the variable, whose value is then not parsed.
    let shown = refused("serve --log-level quiet", "PETSTORE_LOG_LEVEL", "loud");
    assert!(shown.contains("'quiet' for '--log-level <LEVEL>'"), "{shown}");
    let list = Process::start(folder.command("migrate --log-level info").env("PETSTORE_LOG_LEVEL", "loud")).end();
    assert_eq!(list.shown(), "exit 0\n");
}

#[test]
fn unknown_variables_are_reported_once() {
    let folder = Folder::new();
    let run = |line: &str| {
        let mut command = folder.command(line);
        command
            .env("PETSTORE_LISEN", ":8080")
            .env("PETSTORE_DATADIR", "elsewhere")
            .env("PETSTORE_FOO", "unlike any setting")
            .env("PETSTORE_CONFIG", "empty.toml");
        // Kubernetes sets these for a service named petstore.
        command.env("PETSTORE_SERVICE_HOST", "10.0.0.1").env("PETSTORE_PORT", "tcp://10.0.0.1:80");
        Process::start(&mut command).end()
    };
    folder.write("empty.toml", "");
    expect![[r#"
        exit 0
        warning: PETSTORE_DATADIR in the environment is not a setting; did you mean PETSTORE_DATA_DIR?
        warning: PETSTORE_FOO in the environment is not a setting
        warning: PETSTORE_LISEN in the environment is not a setting; did you mean PETSTORE_LISTEN?
    "#]]
    .assert_eq(&run("migrate").shown());
    expect![[r#"
        exit 1
        WARN PETSTORE_DATADIR in the environment is not a setting; did you mean PETSTORE_DATA_DIR?
        WARN PETSTORE_FOO in the environment is not a setting
        WARN PETSTORE_LISEN in the environment is not a setting; did you mean PETSTORE_LISTEN?
        ERROR missing.pem: No such file or directory (os error 2)
    "#]]
    .assert_eq(&run("serve --listeners ops --tls-cert missing.pem --tls-key missing.pem").shown_log());
    assert_eq!(run("migrate --log-level error").shown(), "exit 0\n");
    assert_eq!(run("completions bash").stderr, "", "it needs no settings");
}

#[test]
fn database_settings_may_precede_the_command() {
    let folder = Folder::new();
    let file = "data-dir = \"first\"\ndeployment = \"staging\"\nlisten = \"127.0.0.1:0\"";
    folder.write("petstore.toml", file);
    folder.succeed("--config petstore.toml account create ada@example.com");
    assert!(folder.path("first/petstore.db").exists() && !folder.path("petstore-data").exists());
    folder.succeed("key --data-dir first list");
    folder.succeed("migrate --data-dir first status");
    let key = folder.succeed("key create --account ada@example.com --name test --config petstore.toml");
    assert!(key.starts_with("pet_test_"), "{key}");
    folder.succeed("--data-dir nowhere key list --data-dir first");
    let mut elsewhere = folder.command("key list --data-dir first");
    let listed = Process::start(elsewhere.env("PETSTORE_DATABASE_URL", "postgres://127.0.0.1:1/shop")).end();
    assert_eq!(listed.code, Some(0), "the flag names the database: {listed:?}");
    let mut show = folder.command("config show --data-dir first");
    show.env("PETSTORE_DATABASE_URL", "postgres://127.0.0.1:1/shop").env("PETSTORE_REQUIRE_STANDBYS", "true");
    let shown = Process::start(&mut show).end().stdout;
    for setting in ["database-url", "require-standbys"] {
        assert!(shown.contains(&format!("\n# {setting} is not set\n")), "{shown}");
    }
    // The last one counts, so that a wrapper's can be overridden.
    folder.succeed("key list --data-dir nowhere --data-dir first");

    let mut show =
        folder.command("--data-dir first --log-format json --deployment staging config show --log-level warn");
    let shown = Process::start(show.env("PETSTORE_DATA_DIR", "second").env("PETSTORE_DEPLOYMENT", "production")).end();
    for (name, value) in
        [("data-dir", "first"), ("deployment", "staging"), ("log-level", "warn"), ("log-format", "json")]
    {
        assert!(shown.stdout.contains(&format!("{name} = \"{value}\" # flag\n")), "{shown:?}");
    }
}

#[test]
fn config_show_reads_the_deployment_from_the_database() {
    for database in [String::new(), format!(" --database-url {}", testkit::postgres::database())] {
        let folder = Folder::new();
        folder.succeed(&format!("account create ada@example.com --deployment staging{database}"));
        let shown = folder.succeed(&format!("config show{database}"));
        assert!(shown.contains("deployment = \"staging\" # database\n"), "{shown}");
    }
    let shown = Folder::new().succeed("config show --database-url postgres://ada:s3cret@127.0.0.1:1/shop");
    assert!(shown.contains("\n# deployment is not set, and that of the database is unknown: cannot open"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[test]
fn config_check_reports_what_serve_would_and_changes_nothing() {
    let folder = Folder::new();
    let check = |flags: &str| {
        let free = "--listen 127.0.0.1:0 --messages-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";
        folder.run(&format!("config check {free} {flags}")).shown()
    };
    let valid = "exit 0\nthe configuration is valid; ";
    assert_eq!(check(""), format!("{valid}`petstore serve` would create a production database\n"));
    assert!(!folder.path("petstore-data").exists());
    let missing = check("--tls-cert none.pem --tls-key none.pem");
    assert!(missing.starts_with("exit 1\nerror: ") && missing.contains("none.pem"), "{missing}");
    let others = "--messages-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";
    let exposed = folder.run(&format!("config check --listen 0.0.0.0:0 {others}")).shown();
    assert!(exposed.starts_with("exit 1\nerror: the store listener is bound to 0.0.0.0:0"), "{exposed}");
    let unreachable = check("--database-url postgres://ada@127.0.0.1:1/shop");
    assert!(unreachable.starts_with("exit 1\nerror: cannot open") && unreachable.contains("refused"), "{unreachable}");

    folder.write("file", "");
    std::os::unix::fs::symlink("nowhere", folder.path("link")).unwrap();
    let deep = "d/".repeat(300);
    let why = check(&format!("--data-dir {deep}"));
    assert!(why.contains("the path of the database is too long for SQLite"), "{why}");
    for (flags, why) in [
        ("--data-dir link", "cannot open the database in link: link: not a directory"),
        ("--data-dir file", "cannot open the database in file: file: not a directory"),
        (
            "--backup-every 1h --backup-dir file/of",
            "cannot write backups to file/of: unavailable: file: not a directory",
        ),
        ("--require-standbys", "an embedded database has no standbys: give --database-url with --require-standbys"),
    ] {
        assert_eq!(check(flags), format!("exit 1\nerror: {why}\n"));
    }
    let twice =
        "config check --insecure --listen [::]:9 --messages-listen [::ffff:127.0.0.1]:9 --ops-listen 127.0.0.1:0";
    let why = "\nerror: cannot listen on [::ffff:127.0.0.1]:9 (--messages-listen): Address already in use";
    let refused = folder.run(twice).shown();
    assert!(refused.starts_with("exit 1\n") && refused.contains(why), "{refused}");

    folder.succeed("account create ada@example.com --deployment staging");
    assert_eq!(check(""), format!("{valid}the database is a staging one\n"));
    let other = "exit 1\nerror: the database is a staging one and cannot be opened as production\n";
    assert_eq!(check("--deployment production"), other);

    let server = folder.serve("serve");
    let port = server.store().port();
    let _messages = TcpListener::bind(("127.0.0.2", port)).unwrap();
    let check_beside = |messages: &str| {
        let addresses = format!("--listen 127.0.0.1:{port} --messages-listen {messages}:{port}");
        folder.run(&format!("config check --insecure {addresses} --listeners store,messages"))
    };
    let beside = check_beside("127.0.0.2");
    assert_eq!(beside.code, Some(0), "{beside:?}");
    assert_eq!(beside.stderr.matches("cannot listen on").count(), 2, "{beside:?}");
    let overlapping = check_beside("0.0.0.0");
    let why = format!("error: cannot listen on 0.0.0.0:{port} (--messages-listen): Address already in use");
    assert!(overlapping.code == Some(1) && overlapping.stderr.contains(&why), "{overlapping:?}");
}
