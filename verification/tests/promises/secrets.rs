//! Promise 28: no secret appears in the log at any level, in a panic, in the database, in its write-ahead log or in a
//! recorded request.

use std::fmt::Debug;
use std::fs;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use petstore::domain::account::NewPassword;
use petstore::domain::{ApiKey, Deployment, Secret, SessionToken};
use petstore::store::postgres::DatabaseUrl;
use testkit::console::{between, code, form};
use testkit::{Database, Killed, PostgresServer, Request, Response, TIMEOUT, eventually, new_pet, trial, within};

/// Passwords that occur nowhere else.
const PASSWORD: &str = "canary-of-the-password-7f3a";
const NEW_PASSWORD: &str = "canary-of-the-new-password-91bc";
const WRONG_PASSWORD: &str = "canary-of-a-wrong-password-55de";
const DATABASE_PASSWORD: &str = "canary-of-the-database-02fe";
/// Not a secret. The search must find it.
const NO_SECRET: &str = "canary-that-is-no-secret";

#[test]
fn no_secret_is_in_logs_or_the_embedded_database() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let database = Database::folder(&file("data"));
    let mut secrets = vec![PASSWORD.to_owned(), NEW_PASSWORD.into(), WRONG_PASSWORD.into(), DATABASE_PASSWORD.into()];

    let service = Logged::serve(&database, &file("log"));
    let (cookies, key, successor) = service.use_console();
    let mut damaged = key.clone();
    damaged.replace_range(20..24, "0000");
    for credential in [&key, &successor, &damaged, &format!("{key} {key}"), &format!("{key}\u{e4}")] {
        for path in ["/v1/pets?limit=0", "/v1/pets/1", "/v1/nothing", &format!("/v1/pets?access_token={key}")] {
            service.request("GET", path).key(credential).send_blocking();
        }
        service.request("GET", "/v1/pets").key(credential).key(credential).send_blocking();
        let pet = format!("{{\"name\":\"{NO_SECRET}\",\"categoryId\":1,\"other\":\"{key}\"}}");
        for body in [format!("{{\"key\":\"{key}\","), pet] {
            service.request("POST", "/v1/pets").key(credential).json(body).send_blocking();
        }
    }
    // The store fails and logs the error.
    database.sql("ALTER TABLE pets RENAME TO elsewhere");
    let failed = service.request("GET", "/v1/pets/1").key(&key).send_blocking();
    assert_eq!(failed.status(), 500, "{failed:?}");
    let page = service.submit("/animals/new", &[("name", "Rex"), ("categoryId", "1"), ("status", "sold")], &cookies[1]);
    assert_eq!(page.status(), 500, "{page:?}");
    database.sql("ALTER TABLE elsewhere RENAME TO pets");
    service.request("GET", &format!("/{NO_SECRET}")).send_blocking();
    fs::write(file("requests"), service.recorded_requests(&cookies[1])).unwrap();
    secrets.extend([key.clone(), successor, key["pet_live_".len()..].to_owned()]);
    secrets.extend(cookies.iter().map(|cookie| session_of(cookie)));

    // Output of commands that succeed and fail.
    let url = format!("postgres://petstore:{DATABASE_PASSWORD}@127.0.0.1:1/petstore");
    let mut output = Vec::new();
    for (command, url) in [
        ("key list --json", None),
        ("key revoke 99", None),
        ("config show", Some(url.clone())),
        ("key list", Some(url.clone())),
        ("serve", Some(url.replace("127.0.0.1:1", "127.0.0.1:port"))),
        ("serve", Some(url.replace("postgres:", "postgrs:"))),
    ] {
        let mut command = database.petstore(command);
        command.env("PETSTORE_LOG_LEVEL", "trace").envs(url.map(|url| ("PETSTORE_DATABASE_URL", url)));
        let ended = command.output().unwrap();
        output.extend([ended.stdout, ended.stderr].concat());
    }
    fs::write(file("output"), output).unwrap();
    fs::write(file("panic"), panic_text(&key)).unwrap();
    // A killed process leaves its write-ahead log behind, and loses lines that it has not written to the other log.
    within(TIMEOUT, "the log", || contains(&fs::read(file("log")).unwrap(), &format!("/{NO_SECRET}")));
    drop(service);

    let searched = assert_nowhere(&secrets, folder.path());

    // Control: the search finds texts in each of these places that are not secret.
    let log = fs::read(file("log")).unwrap();
    assert!(contains(&log, NO_SECRET) && contains(&log, "\"message\":\"request\""), "each request is logged");
    let failures = String::from_utf8_lossy(&log).matches("no such table").count();
    assert_eq!(failures, 2, "the failures of the API and the console are logged");
    for (name, text) in [
        ("data/petstore.db-wal", NO_SECRET),
        ("panic", "hidden"),
        ("output", "127.0.0.1:1"),
        ("requests", "access_token=[hidden]"),
    ] {
        assert!(contains(&fs::read(file(name)).unwrap(), text), "{name}");
    }
    trial::measured(&format!(
        "{} secrets in {searched} bytes of log, database, WAL and panic text: 0 hits",
        secrets.len()
    ));
}

#[test]
fn no_secret_is_in_recorded_requests() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(&folder.path().join("data"));
    database.run("migrate --deployment staging");
    let service = Logged::serve(&database, &folder.path().join("log"));
    let (cookies, key, successor) = service.use_console();
    let percent = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    // Each is sent as a query, as a header, and in bodies: whole, and cut off at the end of what is kept.
    let texts = [
        key.clone(),
        percent(&key),
        percent(&percent(&key)),
        key.replace('_', "\\u005f"),
        format!("password={PASSWORD}"),
        percent(&format!("{{\"newPassword\":\"{PASSWORD}\"}}")),
        format!("http://ada:{PASSWORD}@shop.example/"),
    ];
    for text in &texts {
        let send = |method: &str, path: &str| {
            let request = service.request(method, path).key(&key).header("cookie", &cookies[1]);
            request.header("x-api-key", &successor).header("x-password", PASSWORD).header("x-note", text)
        };
        send("GET", &format!("/v1/pets?{NO_SECRET}&x={}", text.replace('\\', "%5C"))).send_blocking();
        send("GET", &format!("/v1/{NO_SECRET}/{}", percent(text))).send_blocking();
        for filler in [0, 16_000, 16 * 1024 - 30, 16 * 1024 - 10] {
            let body = format!("{{\"name\":\"{NO_SECRET}\",\"x\":\"{}{text}\",", "y".repeat(filler));
            send("POST", "/v1/pets").json(format!("{body}\"password\":\"{PASSWORD}\"}}")).send_blocking();
        }
    }
    let others = [
        ("POST", "", format!("password={PASSWORD}&key={}", percent(&key))),
        ("POST", "", format!("<account><password>{PASSWORD}</password></account>")),
        ("POST", "", format!("--x\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\n{PASSWORD}\r\n--x--")),
        ("GET", &format!("&password[]={PASSWORD}"), String::new()),
        ("GET", &format!("&x={}", key.replace('_', "%2525255f")), String::new()),
    ];
    for (method, query, body) in &others {
        let request = service.request(method, &format!("/v1/pets?{NO_SECRET}{query}")).key(&key);
        request.header("x-request-id", &key).json(body.as_str()).send_blocking();
    }
    service.submit("/keys/1/revoke", &[], &cookies[1]);
    service.request("GET", &format!("/v1/pets?{NO_SECRET}={key}")).key(&key).send_blocking();

    let pages = service.recorded_requests(&cookies[1]);

    let secret = |text: &str| text["pet_test_".len()..].to_owned();
    // Parts of a key are secrets too.
    let mut secrets = vec![PASSWORD.to_owned(), secret(&key)[..8].into(), secret(&successor)[..8].into()];
    secrets.extend([percent(&secret(&key)[..8]), session_of(&cookies[1]), percent(PASSWORD)]);
    for secret in &secrets {
        assert!(!pages.contains(secret), "{secret} is in a recorded request");
    }
    // Control: what is not secret is shown for each request, in its list and on its page.
    let sent = texts.len() * 6 + others.len() + 1;
    assert!(pages.matches(NO_SECRET).count() >= 2 * sent, "{pages}");
    trial::measured(&format!("{} secrets in {} bytes of {sent} recorded requests: 0 hits", secrets.len(), pages.len()));
}

#[test]
fn no_secret_is_in_postgresql() {
    let server = PostgresServer::start();
    let service = Logged::serve(&Database::url(server.database()), &server.folder.join("log-of-petstore"));
    let (cookies, key, successor) = service.use_console();
    let request = service.request("POST", "/v1/pets").key(&key).header("idempotency-key", NO_SECRET);
    assert_eq!(request.json(new_pet(NO_SECRET)).send_blocking().status(), 201);
    server.sql("postgres", "CHECKPOINT");
    let mut secrets = vec![PASSWORD.to_owned(), NEW_PASSWORD.into(), WRONG_PASSWORD.into(), key.clone(), successor];
    secrets.push(key["pet_live_".len()..].to_owned());
    secrets.extend(cookies.iter().map(|cookie| session_of(cookie)));
    let searched = assert_nowhere(&secrets, &server.folder);

    // Control: the search finds a text in tables and in the write-ahead log that is not secret.
    for part in ["data/base", "data/pg_wal"] {
        let mut files = files(&server.folder.join(part)).into_iter();
        assert!(files.any(|file| contains(&fs::read(file).unwrap(), NO_SECRET)), "{part}");
    }
    trial::measured(&format!("{} secrets in {} MiB of PostgreSQL's files: 0 hits", secrets.len(), searched >> 20));
}

/// Searches all files of a folder. Returns their size in bytes.
fn assert_nowhere(secrets: &[String], folder: &Path) -> usize {
    let mut searched = 0;
    let mut found = Vec::new();
    for file in files(folder) {
        let bytes = fs::read(&file).unwrap();
        searched += bytes.len();
        for secret in secrets.iter().filter(|secret| contains(&bytes, secret)) {
            found.push(format!("{secret} is in {}", file.display()));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    searched
}

/// The texts of panics that show a value of each type that holds a secret.
fn panic_text(key: &str) -> String {
    let (made, token) = (ApiKey::generate(Deployment::Production), SessionToken::generate());
    let url = format!("postgres://petstore:{DATABASE_PASSWORD}@db/petstore");
    [
        text_of_panic(made.clone(), made.expose()),
        text_of_panic(token.clone(), token.expose()),
        text_of_panic(NewPassword::parse(&Secret::new(PASSWORD)).unwrap(), PASSWORD),
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

fn session_of(cookie: &str) -> String {
    cookie.split_once('=').unwrap().1.to_owned()
}

/// A service that logs at trace level into a file. Killed on drop.
struct Logged {
    _process: Killed,
    address: SocketAddr,
}

impl Logged {
    fn serve(database: &Database, log: &Path) -> Self {
        let mut command = database.serve_command("");
        command.env("PETSTORE_LOG_LEVEL", "trace").stderr(fs::File::create(log).unwrap());
        let process = command.stdout(Stdio::null()).spawn().unwrap();
        let address = eventually(Duration::from_secs(60), "starting", || {
            let text = fs::read_to_string(log).unwrap();
            text.contains("\"listening\"").then(|| between(&text, "\"store\":\"", "\"").parse().unwrap())
        });
        Self { _process: Killed(process), address }
    }

    /// Uses each page that accepts or shows a secret, with right and wrong secrets. Returns the session cookies (before and
    /// after a change of the password, and from signing up), the key that was created, and the one that replaced it.
    fn use_console(&self) -> ([String; 3], String, String) {
        let credentials = |password| [("email", "ada@example.com"), ("password", password)];
        let signed_up = self.submit("/sign-up", &credentials(PASSWORD), "");
        self.submit("/sign-in", &credentials(WRONG_PASSWORD), "");
        let signed_in = self.submit("/sign-in", &credentials(PASSWORD), "");
        let cookie = signed_in.cookie().unwrap();
        let new_key = [("name", NO_SECRET), ("expiry", "never"), ("access", "write"), ("newest", "0")];
        let created = self.submit("/keys/new", &new_key, &cookie);
        let rotated = self.submit("/keys/1/rotate", &[("overlap", "24h"), ("newest", "1")], &cookie);
        let changed = self.submit("/account/password", &[("current", PASSWORD), ("new", NEW_PASSWORD)], &cookie);
        let cookies = [cookie, changed.cookie().unwrap(), signed_up.cookie().unwrap()];
        self.submit("/account/password", &[("current", WRONG_PASSWORD), ("new", "x")], &cookies[1]);
        self.submit("/account/delete", &[("password", WRONG_PASSWORD)], &cookies[1]);
        (cookies, code(&created.body, "key"), code(&rotated.body, "key"))
    }

    fn submit(&self, path: &str, fields: &[(&str, &str)], cookie: &str) -> Response {
        form(self.address, path, fields).header("cookie", cookie).send_blocking()
    }

    fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.address, method, path)
    }

    /// All texts of the account's recorded requests: their list and, on staging, their pages.
    fn recorded_requests(&self, cookie: &str) -> String {
        let open = |path: &str| self.request("GET", path).header("cookie", cookie).send_blocking().body;
        let list = open("/requests");
        let links = list.split("href=\"./requests/").skip(1).map(|rest| rest.split('"').next().unwrap());
        let pages: String = links.map(|id| open(&format!("/requests/{id}"))).collect();
        list + &pages
    }
}

/// The files of a folder and its subfolders, without sockets.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let within = |path: PathBuf| match path {
        folder if folder.is_dir() => files(&folder),
        file if file.is_file() => vec![file],
        _ => Vec::new(),
    };
    entries.flat_map(within).collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(bytes).contains(text)
}
