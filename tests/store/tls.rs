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

    /// Asserts that all connections are encrypted, that none is, or that the error contains a text.
    async fn assert_connects(&self, hosts: &str, parameters: &str, outcome: Result<bool, &str>) {
        static TRIED: AtomicU32 = AtomicU32::new(0);
        let name = format!("tried{}", TRIED.fetch_add(1, Ordering::Relaxed));
        let hosts = hosts.replace("PORT", &self.server.port().to_string());
        let url = format!("postgres://petstore@{hosts}/{}?application_name={name}&{parameters}", self.database);
        match (Postgres::open(&options(&url)).await, outcome) {
            (Ok(store), Ok(is_encrypted)) => {
                let encrypted = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)";
                let encrypted = format!("{encrypted} WHERE application_name = '{name}'");
                let encrypted = self.server.sql(&self.database, &encrypted);
                assert_eq!(encrypted, if is_encrypted { "t" } else { "f" }, "{url}");
                store.close().await;
            }
            (Err(why), Err(expected)) => assert!(why.to_string().contains(expected), "{url}: {why}"),
            (opened, _) => panic!("{url}: {:?}", opened.map(drop)),
        }
    }

    fn root(&self) -> String {
        format!("sslrootcert={}", self.authority.file.display())
    }
}

#[tokio::test]
async fn mode_decides_about_encryption_and_verification() {
    let secure = Secure::shared();
    let root = secure.root();
    let other = Certificate::of_authority(&secure.server.folder, "other");
    // The first certificate is indented, and the second one begins on its last line.
    let pems = [&other.file, &secure.authority.file].map(|file| std::fs::read_to_string(file).unwrap());
    let joined = secure.server.folder.join("joined.pem");
    std::fs::write(&joined, format!("  {}{}", pems[0].trim_end(), pems[1])).unwrap();
    let joined = format!("sslmode=verify-full&sslrootcert={}", joined.display());
    let other = format!("sslrootcert={}", other.file.display());
    let (ip, name, both) = ("127.0.0.1:PORT", "localhost:PORT", "127.0.0.1:PORT,localhost:PORT");
    let socket = format!("{}:PORT", secure.server.folder.display()).replace('/', "%2F");
    for (hosts, parameters, outcome) in [
        (ip, String::new(), Ok(true)),
        (ip, "sslmode=prefer".into(), Ok(true)),
        (ip, "sslmode=require".into(), Ok(true)),
        (ip, "sslmode=disable".into(), Err("no encryption")),
        (ip, format!("sslmode=verify-ca&{root}"), Ok(true)),
        (ip, format!("sslmode=require&{root}"), Ok(true)),
        (name, format!("sslmode=verify-full&{root}"), Ok(true)),
        (ip, format!("sslmode=verify-full&{root}"), Err("not valid for name")),
        (ip, format!("sslmode=verify-ca&{other}"), Err("UnknownIssuer")),
        (ip, format!("sslmode=require&{other}"), Err("UnknownIssuer")),
        (name, format!("sslmode=verify-full&{other}"), Err("UnknownIssuer")),
        (name, joined, Ok(true)),
        // Each host must prove its own name.
        (both, format!("sslmode=verify-full&{root}"), Ok(true)),
        ("127.0.0.1:PORT,127.0.0.1:PORT", format!("sslmode=verify-full&{root}"), Err("not valid for name")),
        (name, "sslmode=verify-full&sslrootcert=missing.pem".into(), Err("missing.pem: No such file")),
        // A Unix socket is used without TLS in every mode.
        (&socket, "sslmode=prefer".into(), Ok(false)),
        (&socket, format!("sslmode=verify-full&{root}"), Ok(false)),
    ] {
        secure.assert_connects(hosts, &parameters, outcome).await;
    }
}

#[tokio::test]
async fn self_signed_certificate_is_trusted_if_it_is_the_root() {
    let secure = Secure::start();
    // `openssl req -x509` marks it as an authority.
    let extensions = "basicConstraints=critical,CA:TRUE\nsubjectAltName=DNS:localhost";
    let own = Certificate::make(&secure.server.folder, "own", extensions, None);
    secure.server.require_tls(&own.file, &own.key);
    let full = format!("sslmode=verify-full&sslrootcert={}", own.file.display());
    secure.assert_connects("localhost:PORT", &full, Ok(true)).await;
    secure.assert_connects("127.0.0.1:PORT", &full, Err("not valid for name")).await;
    let another = format!("sslmode=verify-full&{}", secure.root());
    secure.assert_connects("localhost:PORT", &another, Err("invalid peer certificate")).await;
}

#[tokio::test]
async fn server_without_tls_is_accepted_unless_tls_is_required() {
    let secure = Secure::start();
    secure.server.set("ssl", "off");
    secure.set_rules("host all all 127.0.0.1/32 trust");
    for mode in ["", "sslmode=prefer", "sslmode=disable"] {
        secure.assert_connects("127.0.0.1:PORT", mode, Ok(false)).await;
    }
    secure.assert_connects("127.0.0.1:PORT", "sslmode=require", Err("server does not support TLS")).await;
}

#[tokio::test]
async fn password_proof_is_bound_to_the_tls_connection() {
    let secure = Secure::shared();
    secure.assert_connects("127.0.0.1:PORT", "", Ok(true)).await;
    // One connection each, because SCRAM is slow in debug builds.
    let connect = async |parameters: &str| {
        let (port, database) = (secure.server.port(), &secure.database);
        let url = format!("postgres://ada:s3cret@127.0.0.1:{port}/{database}?{parameters}");
        let status = Postgres::migration_status(&options(&url).cluster.url).await;
        status.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(connect("sslmode=require&channel_binding=require").await, Ok(()));
    assert_eq!(connect("sslmode=disable").await, Ok(()));
    let plain = connect("sslmode=disable&channel_binding=require").await.unwrap_err();
    assert!(plain.contains("channel binding"), "{plain}");
}
