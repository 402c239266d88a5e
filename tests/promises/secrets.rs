//! Promise 28: what is secret is nowhere but where it belongs: not in the log, however much is logged, and not on disk.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use petstore::domain::account::NewPassword;
use petstore::domain::{ApiKey, Deployment, Secret, SessionToken};
use petstore::store::postgres::DatabaseUrl;
use testkit::{Database, PostgresServer, SERVE, trial};

/// Passwords that stand nowhere else.
const PASSWORD: &str = "canary-of-the-password-7f3a";
const NEW_PASSWORD: &str = "canary-of-the-new-password-91bc";
const WRONG_PASSWORD: &str = "canary-of-a-wrong-password-55de";
const DATABASE_PASSWORD: &str = "canary-of-the-database-02fe";
/// What is no secret, and so must be found: the search does search.
const NO_SECRET: &str = "canary-that-is-no-secret";

#[test]
fn no_secret_is_in_logs_or_the_embedded_database() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let data = folder.path().join("data");
    let database = Database::folder(&data);
    let mut secrets = vec![PASSWORD.to_owned(), NEW_PASSWORD.into(), WRONG_PASSWORD.into(), DATABASE_PASSWORD.into()];

    let mut service = Logged::serve(&database, &log);
    let Console { cookies, key, successor } = service.use_console();
    let cookie = &cookies[1];
    let mut damaged = key.clone();
    damaged.replace_range(20..24, "0000");
    for credential in [&key, &successor, &damaged, &format!("{key} {key}"), &format!("{key}\u{e4}")] {
        for path in ["/v1/pets?limit=0", "/v1/pets/1", "/v1/nothing", &format!("/v1/pets?access_token={key}")] {
            service.ask(&format!("GET {path} HTTP/1.1\r\nauthorization: Bearer {credential}\r\n"), "");
        }
        let two = format!("authorization: Bearer {credential}\r\nauthorization: Bearer {credential}\r\n");
        service.ask(&format!("GET /v1/pets HTTP/1.1\r\n{two}"), "");
        let json = format!("authorization: Bearer {credential}\r\ncontent-type: application/json\r\n");
        service.ask(&format!("POST /v1/pets HTTP/1.1\r\n{json}"), &format!("{{\"key\":\"{key}\","));
        let pet = format!("{{\"name\":\"{NO_SECRET}\",\"categoryId\":1,\"other\":\"{key}\"}}");
        service.ask(&format!("POST /v1/pets HTTP/1.1\r\n{json}"), &pet);
    }
    // The store fails, and says why to the log.
    let broken = rusqlite::Connection::open(data.join("petstore.db")).unwrap();
    broken.execute_batch("ALTER TABLE pets RENAME TO elsewhere").unwrap();
    let failed = service.ask(&format!("GET /v1/pets/1 HTTP/1.1\r\nauthorization: Bearer {key}\r\n"), "");
    assert!(failed.starts_with("HTTP/1.1 500 "), "{failed}");
    let page = service.submit("/animals/new", "name=Rex&categoryId=1&status=sold", cookie);
    assert!(page.starts_with("HTTP/1.1 500 "), "{page}");
    broken.execute_batch("ALTER TABLE elsewhere RENAME TO pets").unwrap();
    service.ask(&format!("GET /{NO_SECRET} HTTP/1.1\r\n"), "");
    secrets.extend([key.clone(), successor, key["pet_live_".len()..].to_owned()]);
    secrets.extend(cookies.iter().map(|cookie| session_of(cookie)));

    // What the command line says, when all is well and when it is not.
    let address = format!("postgres://petstore:{DATABASE_PASSWORD}@127.0.0.1:1/petstore");
    let mut said = String::new();
    for (command, url) in [
        ("key list --json", None),
        ("key revoke 99", None),
        ("config show", Some(address.clone())),
        ("key list", Some(address.clone())),
        ("serve", Some(address.replace("127.0.0.1:1", "127.0.0.1:port"))),
        ("serve", Some(address.replace("postgres:", "postgrs:"))),
    ] {
        let mut command = database.petstore(command);
        command.env("PETSTORE_LOG_LEVEL", "trace");
        if let Some(url) = url {
            command.env("PETSTORE_DATABASE_URL", url);
        }
        let output = command.output().unwrap();
        said += &String::from_utf8_lossy(&[output.stdout, output.stderr].concat());
    }
    std::fs::write(folder.path().join("said"), said).unwrap();
    std::fs::write(folder.path().join("panic"), panic_text(&key)).unwrap();
    // The write-ahead log is still there: the process did not get to close it.
    service.0.kill().unwrap();
    service.0.wait().unwrap();

    let searched = assert_nowhere(&secrets, folder.path());

    // The control: what is no secret is found in each of these places.
    let log = std::fs::read(&log).unwrap();
    assert!(contains(&log, NO_SECRET) && contains(&log, "\"message\":\"request\""), "each request is logged");
    assert_eq!(
        String::from_utf8_lossy(&log).matches("no such table").count(),
        2,
        "and why those of API and console failed"
    );
    assert!(contains(&std::fs::read(data.join("petstore.db-wal")).unwrap(), NO_SECRET));
    assert!(contains(&std::fs::read(folder.path().join("panic")).unwrap(), "hidden"));
    assert!(contains(&std::fs::read(folder.path().join("said")).unwrap(), "127.0.0.1:1"));
    trial::measured(&format!(
        "{} secrets in {searched} bytes of log, database, WAL and panic text: 0 hits",
        secrets.len()
    ));
}

#[test]
fn no_secret_is_in_postgresql() {
    let server = PostgresServer::start();
    let log = server.folder.join("log-of-petstore");
    let service = Logged::serve(&Database::url(server.database()), &log);
    let Console { cookies, key, successor } = service.use_console();
    let sessions = cookies.each_ref().map(|cookie| session_of(cookie));
    let json =
        format!("authorization: Bearer {key}\r\ncontent-type: application/json\r\nidempotency-key: {NO_SECRET}\r\n");
    let pet = format!("{{\"name\":\"{NO_SECRET}\",\"categoryId\":1}}");
    assert!(service.ask(&format!("POST /v1/pets HTTP/1.1\r\n{json}"), &pet).starts_with("HTTP/1.1 201"));
    server.sql("postgres", "CHECKPOINT");
    let secrets = [
        PASSWORD,
        NEW_PASSWORD,
        WRONG_PASSWORD,
        &sessions[0],
        &sessions[1],
        &sessions[2],
        &key,
        &successor,
        &key["pet_live_".len()..],
    ];
    let searched = assert_nowhere(&secrets, &server.folder);

    // The control: what is no secret is found in tables and in the log of writes.
    for part in ["data/base", "data/pg_wal"] {
        let found =
            files(&server.folder.join(part)).iter().any(|file| contains(&std::fs::read(file).unwrap(), NO_SECRET));
        assert!(found, "{part}");
    }
    trial::measured(&format!("{} secrets in {} MiB of PostgreSQL's files: 0 hits", secrets.len(), searched >> 20));
}

/// Searches all files of a folder; says how many bytes they have.
fn assert_nowhere(secrets: &[impl AsRef<str>], folder: &Path) -> usize {
    let mut searched = 0;
    let mut found = Vec::new();
    for file in files(folder) {
        let bytes = std::fs::read(&file).unwrap();
        searched += bytes.len();
        for secret in secrets.iter().map(AsRef::as_ref).filter(|secret| contains(&bytes, secret)) {
            found.push(format!("{secret} is in {}", file.display()));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    searched
}

/// What panics say over values of every type that holds a secret.
fn panic_text(key: &str) -> String {
    let (made, token) = (ApiKey::generate(Deployment::Production), SessionToken::generate());
    let url = format!("postgres://petstore:{DATABASE_PASSWORD}@db/petstore");
    [
        text_of_panic(made.clone(), made.expose()),
        text_of_panic(token.clone(), token.expose()),
        text_of_panic(NewPassword::parse(Secret::new(PASSWORD)).unwrap(), PASSWORD),
        text_of_panic(Secret::new(key), key),
        text_of_panic(DatabaseUrl::parse(&url).unwrap(), DATABASE_PASSWORD),
    ]
    .join("\n")
}

fn text_of_panic<T: Debug>(secret: T, exposed: &str) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| panic!("{secret:?}"))).unwrap_err();
    let text = panic.downcast::<String>().unwrap();
    assert!(!text.contains(exposed), "{text}");
    *text
}

/// The secrets that somebody gets who signs up and in, makes a key and renews it.
struct Console {
    /// Session cookies: before a new password, after it, and from signing up.
    cookies: [String; 3],
    key: String,
    successor: String,
}

fn session_of(cookie: &str) -> String {
    cookie.split_once('=').unwrap().1.to_owned()
}

/// A service that logs all there is to say into a file.
struct Logged(Child, String);

impl Logged {
    fn serve(database: &Database, log: &Path) -> Self {
        let mut command: Command = database.petstore(SERVE);
        command.env("PETSTORE_LOG_LEVEL", "trace").stderr(std::fs::File::create(log).unwrap());
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let mut address = None;
        testkit::within(std::time::Duration::from_secs(60), "starting", || {
            let said = std::fs::read_to_string(log).unwrap();
            address = said.contains("\"listening\"").then(|| between(&said, "\"store\":\"", "\"").to_owned());
            address.is_some()
        });
        Self(child, address.unwrap())
    }

    /// Somebody uses each page that takes or gives a secret, rightly and wrongly.
    fn use_console(&self) -> Console {
        let form =
            |fields: &[(&str, &str)]| form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let credentials = |password| form(&[("email", "ada@example.com"), ("password", password)]);
        let signed_up = self.submit("/sign-up", &credentials(PASSWORD), "");
        self.submit("/sign-in", &credentials(WRONG_PASSWORD), "");
        let signed_in = self.submit("/sign-in", &credentials(PASSWORD), "");
        let cookie = between(&signed_in, "set-cookie: ", ";").to_owned();
        let new_key = form(&[("name", NO_SECRET), ("expiry", "never"), ("newest", "0")]);
        let made = self.submit("/keys/new", &new_key, &cookie);
        let rotated = self.submit("/keys/1/rotate", &form(&[("overlap", "24h"), ("newest", "1")]), &cookie);
        let passwords = form(&[("current", PASSWORD), ("new", NEW_PASSWORD)]);
        let changed = self.submit("/account/password", &passwords, &cookie);
        let [changed, signed_up] = [changed, signed_up].map(|page| between(&page, "set-cookie: ", ";").to_owned());
        let cookies = [cookie, changed, signed_up];
        let cookie = &cookies[1];
        self.submit("/account/password", &form(&[("current", WRONG_PASSWORD), ("new", "x")]), cookie);
        self.submit("/account/delete", &form(&[("password", WRONG_PASSWORD)]), cookie);
        let shown = |page: &str| between(page, "<code id=\"key\">", "</code>").to_owned();
        Console { key: shown(&made), successor: shown(&rotated), cookies }
    }

    /// Sends a form as one of our pages would.
    fn submit(&self, path: &str, form: &str, cookie: &str) -> String {
        let head = format!(
            "POST {path} HTTP/1.1\r\norigin: http://{}\r\ncookie: {cookie}\r\n\
             content-type: application/x-www-form-urlencoded\r\n",
            self.1
        );
        self.ask(&head, form)
    }

    /// The whole answer.
    fn ask(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.1).unwrap();
        let length = body.len();
        let request = format!("{head}host: {}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}", self.1);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The files of a folder and of those within, but not the sockets.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let within = |path: std::path::PathBuf| match path {
        folder if folder.is_dir() => files(&folder),
        file if file.is_file() => vec![file],
        _ => Vec::new(),
    };
    entries.flat_map(within).collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(bytes).contains(text)
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("{before:?} is not in {text}")).1;
    rest.split_once(after).unwrap().0
}
