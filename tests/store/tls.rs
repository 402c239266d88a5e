//! TLS to PostgreSQL: every `sslmode` behaves as in libpq.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use petstore::store::postgres::Postgres;
use testkit::{Certificate, PostgresServer};

use crate::fixtures::options;

/// A server that accepts only encrypted connections, with a certificate for `localhost`.
struct Secure {
    server: PostgresServer,
    database: String,
    authority: Certificate,
}

impl Secure {
    /// The server shared by tests that do not change it. The role `ada` needs a password with and without TLS.
    fn shared() -> &'static Self {
        static SHARED: OnceLock<Secure> = OnceLock::new();
        SHARED.get_or_init(|| {
            let secure = Self::start();
            secure.server.sql("postgres", "CREATE ROLE ada LOGIN SUPERUSER PASSWORD 's3cret'");
            let rules = "local all all trust\nhost all ada all scram-sha-256\nhostssl all petstore 127.0.0.1/32 trust";
            secure.set_rules(rules);
            secure
        })
    }

    fn start() -> Self {
        let server = PostgresServer::start();
        let authority = Certificate::of_authority(&server.folder, "authority");
        let certificate = authority.sign(&server.folder, "server", "DNS:localhost");
        let database = server.database().rsplit_once('/').unwrap().1.to_owned();
        server.require_tls(&certificate.file, &certificate.key);
        Self { server, database, authority }
    }

    /// Replaces the rules in `pg_hba.conf`.
    fn set_rules(&self, rules: &str) {
        std::fs::write(self.server.folder.join("data/pg_hba.conf"), rules).unwrap();
        self.server.control(&["reload"]);
    }

    /// Connects. Returns whether the connections are encrypted, or the error.
    async fn connect(&self, hosts: &str, parameters: &str) -> Result<bool, String> {
        static TRIED: AtomicU32 = AtomicU32::new(0);
        let name = format!("tried{}", TRIED.fetch_add(1, Ordering::Relaxed));
        let hosts = hosts.replace("PORT", &self.server.port().to_string());
        let url = format!("postgres://petstore@{hosts}/{}?application_name={name}&{parameters}", self.database);
        let store = Postgres::open(&options(&url)).await.map_err(|error| error.to_string())?;
        let encrypted = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)";
        let encrypted = format!("{encrypted} WHERE application_name = '{name}'");
        let encrypted = self.server.sql(&self.database, &encrypted);
        store.close().await;
        assert!(["t", "f"].contains(&encrypted.as_str()), "all of its connections are alike: {encrypted}");
        Ok(encrypted == "t")
    }

    fn root(&self) -> String {
        format!("sslrootcert={}", self.authority.file.display())
    }
}

#[tokio::test]
async fn default_prefer_and_require_encrypt_without_verification() {
    let secure = Secure::shared();
    for mode in ["", "sslmode=prefer", "sslmode=require"] {
        assert_eq!(secure.connect("127.0.0.1:PORT", mode).await, Ok(true), "{mode}");
    }
    let plain = secure.connect("127.0.0.1:PORT", "sslmode=disable").await.unwrap_err();
    assert!(plain.contains("no encryption"), "{plain}");
}

#[tokio::test]
async fn verify_ca_checks_the_authority_and_verify_full_also_the_name() {
    let secure = Secure::shared();
    let root = secure.root();
    let other = Certificate::of_authority(&secure.server.folder, "other");
    let other = format!("sslrootcert={}", other.file.display());
    for (hosts, parameters, outcome) in [
        ("127.0.0.1:PORT", format!("sslmode=verify-ca&{root}"), Ok(true)),
        ("127.0.0.1:PORT", format!("sslmode=require&{root}"), Ok(true)),
        ("localhost:PORT", format!("sslmode=verify-full&{root}"), Ok(true)),
        ("127.0.0.1:PORT", format!("sslmode=verify-full&{root}"), Err("not valid for name")),
        ("127.0.0.1:PORT", format!("sslmode=verify-ca&{other}"), Err("UnknownIssuer")),
        ("127.0.0.1:PORT", format!("sslmode=require&{other}"), Err("UnknownIssuer")),
        ("localhost:PORT", format!("sslmode=verify-full&{other}"), Err("UnknownIssuer")),
        // Each host must prove its own name.
        ("127.0.0.1:PORT,localhost:PORT", format!("sslmode=verify-full&{root}"), Ok(true)),
        ("127.0.0.1:PORT,127.0.0.1:PORT", format!("sslmode=verify-full&{root}"), Err("not valid for name")),
        ("localhost:PORT", "sslmode=verify-full&sslrootcert=missing.pem".into(), Err("missing.pem: No such file")),
    ] {
        let tried = secure.connect(hosts, &parameters).await;
        match (&tried, outcome) {
            (Ok(encrypted), Ok(expected)) => assert_eq!(*encrypted, expected, "{hosts} {parameters}"),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{hosts} {parameters}: {why}"),
            _ => panic!("{hosts} {parameters}: {tried:?}"),
        }
    }
}

#[tokio::test]
async fn self_signed_certificate_is_trusted_if_it_is_the_root() {
    let secure = Secure::start();
    // `openssl req -x509` marks it as an authority.
    let extensions = "basicConstraints=critical,CA:TRUE\nsubjectAltName=DNS:localhost";
    let own = Certificate::make(&secure.server.folder, "own", extensions, None);
    secure.server.require_tls(&own.file, &own.key);
    let root = format!("sslrootcert={}", own.file.display());
    assert_eq!(secure.connect("localhost:PORT", &format!("sslmode=verify-full&{root}")).await, Ok(true));
    let name = secure.connect("127.0.0.1:PORT", &format!("sslmode=verify-full&{root}")).await.unwrap_err();
    assert!(name.contains("not valid for name"), "{name}");
    assert!(secure.connect("localhost:PORT", &format!("sslmode=verify-full&{}", secure.root())).await.is_err());
}

#[tokio::test]
async fn server_without_tls_is_accepted_unless_tls_is_required() {
    let secure = Secure::start();
    secure.server.set("ssl", "off");
    secure.set_rules("host all all 127.0.0.1/32 trust");
    for mode in ["", "sslmode=prefer", "sslmode=disable"] {
        assert_eq!(secure.connect("127.0.0.1:PORT", mode).await, Ok(false), "{mode}");
    }
    let refused = secure.connect("127.0.0.1:PORT", "sslmode=require").await.unwrap_err();
    assert!(refused.contains("server does not support TLS"), "{refused}");
}

#[tokio::test]
async fn password_proof_is_bound_to_the_tls_connection() {
    let secure = Secure::shared();
    assert_eq!(secure.connect("127.0.0.1:PORT", "").await, Ok(true), "there are tables");
    // One connection each, because SCRAM is slow in debug builds.
    let connect = async |parameters: &str| {
        let (port, database) = (secure.server.port(), &secure.database);
        let url = format!("postgres://ada:s3cret@127.0.0.1:{port}/{database}?{parameters}");
        let status = Postgres::migration_status(&options(&url).url).await;
        status.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(connect("sslmode=require&channel_binding=require").await, Ok(()));
    assert_eq!(connect("sslmode=disable").await, Ok(()));
    let plain = connect("sslmode=disable&channel_binding=require").await.unwrap_err();
    assert!(plain.contains("channel binding"), "{plain}");
}

#[tokio::test]
async fn unix_socket_is_used_without_tls_in_every_mode() {
    let secure = Secure::shared();
    let folder = secure.server.folder.display().to_string().replace('/', "%2F");
    for mode in ["sslmode=prefer".to_owned(), format!("sslmode=verify-full&{}", secure.root())] {
        assert_eq!(secure.connect(&format!("{folder}:PORT"), &mode).await, Ok(false), "{mode}");
    }
}
