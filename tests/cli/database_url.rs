//! `--database-url`: PostgreSQL instead of the folder, for every command.

use std::path::Path;

use expect_test::expect;
use testkit::{Certificate, Folder, PostgresServer, Process};

#[test]
fn database_is_created_once_for_one_deployment() {
    let folder = Folder::new();
    let url = PostgresServer::shared().database();
    let shown = |line: &str| folder.run(&format!("{line} --database-url {url}")).shown().replace(&url, "URL");
    expect![[r#"
        exit 1
        warning: PostgreSQL runs with fsync = off: a crash may lose acknowledged writes
        error: URL: the role sees no tables of petstore; `petstore serve` or `petstore quickstart` creates them without --existing-only
    "#]]
    .assert_eq(&shown("key list"));
    expect![[r#"
        exit 1
        error: URL: the role sees no tables of petstore; `petstore serve` or `petstore quickstart` creates them without --existing-only
    "#]]
    .assert_eq(&shown("migrate status"));
    assert!(shown("migrate --deployment staging").starts_with("exit 0\n"));
    assert!(shown("migrate").starts_with("exit 0\n"));
    let status = shown("migrate status");
    assert!(status.contains("\napplied  V1__store\n") && !status.contains("pending"), "{status}");
    expect![[r#"
        exit 1
        warning: PostgreSQL runs with fsync = off: a crash may lose acknowledged writes
        error: URL: the database is a staging one and cannot be opened as production
    "#]]
    .assert_eq(&shown("migrate --deployment production"));
    assert!(!folder.path("petstore-data").exists());
}

#[test]
fn password_is_never_displayed() {
    let folder = Folder::new();
    let secret = "postgres://ada:s3cret@127.0.0.1:1/shop";
    let mut show = folder.command("config show");
    let shown = Process::start(show.env("PETSTORE_DATABASE_URL", secret)).end().stdout;
    assert!(shown.contains("database-url = \"postgres://ada:[hidden]@127.0.0.1:1/shop\" # environment\n"), "{shown}");

    let hides = |line: &str, why: &str| {
        let ended = folder.run(line);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(why) && !format!("{ended:?}").contains("s3cret"), "{ended:?}");
    };
    for refused in [
        "mysql://ada:s3cret@db/shop",
        "postgres://ada:s3cret@db:port/shop",
        "postgres://ada:s3cret@db/shop?sslmode=verify-full",
        "postgres://ada:s3cret@db/shop?sslcert=s3cret.pem&sslkey=s3cret.key",
    ] {
        for command in ["serve --database-url", "config show --database-url", "move --database-url"] {
            hides(&format!("{command} {refused}"), "");
        }
        folder.write("petstore.toml", format!("database-url = \"{refused}\""));
        hides("migrate --config petstore.toml", "petstore.toml: ");
    }
    // The error for an invalid file does not quote the line.
    let line = format!("database-url = \"{secret}");
    for malformed in [&line, &line.replace('"', ""), &format!("{line}\"\n{line}\""), &format!("{line}\\@\"")] {
        folder.write("petstore.toml", malformed);
        hides("migrate --config petstore.toml", " is not TOML: ");
    }
}

#[test]
fn sslrootcert_system_trusts_the_authorities_of_the_system() {
    let (folder, server) = (Folder::new(), PostgresServer::start());
    let name = server.database().rsplit_once('/').unwrap().1.to_owned();
    let authority = Certificate::of_authority(&server.folder, "authority");
    let certificate = authority.sign(&server.folder, "server", "DNS:localhost");
    server.require_tls(&certificate.file, &certificate.key);
    let migrate = |host: &str, authorities: &Path| {
        let url = format!("postgres://petstore@{host}:{}/{name}?sslrootcert=system", server.port());
        let mut command = folder.command(&format!("migrate --database-url {url}"));
        Process::start(command.env("SSL_CERT_FILE", authorities)).end()
    };
    let ended = migrate("localhost", &authority.file);
    assert_eq!(ended.code, Some(0), "{ended:?}");

    // The system does not trust this authority, and the host name must match.
    for (host, authorities, why) in [
        ("localhost", Path::new("/etc/ssl/certs/ca-certificates.crt"), "UnknownIssuer"),
        ("127.0.0.1", &authority.file, "not valid for name"),
        ("localhost", Path::new("missing.pem"), "missing.pem"),
    ] {
        let ended = migrate(host, authorities);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(why), "{ended:?}");
    }
}

#[test]
fn role_must_use_its_password_and_needs_at_most_three_connections() {
    let folder = Folder::new();
    let server = PostgresServer::start();
    let url = server.database();
    let name = url.rsplit('/').next().unwrap();
    server.sql("postgres", "CREATE ROLE ada LOGIN PASSWORD 's3cr%t' CONNECTION LIMIT 3");
    server.sql("postgres", &format!("ALTER DATABASE {name} OWNER TO ada"));
    server.require_passwords();
    let address = |password: &str| format!("postgres://ada:{password}@127.0.0.1:{}/{name}", server.port());

    folder.write("animals", r#"{"name":"Rex","categoryId":3}"#);
    let key = "key create --account ada@example.com --name laptop";
    let delete = "account delete ada@example.com --yes";
    for line in ["migrate", "account create ada@example.com", key, "pets import animals", "pets export", delete] {
        let ended = folder.run(&format!("{line} --database-url {}", address("s3cr%25t")));
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    }
    let wrong = folder.run(&format!("migrate --database-url {}", address("s3cret")));
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("password authentication failed") && !wrong.stderr.contains("s3cret"), "{wrong:?}");
}
