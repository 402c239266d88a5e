//! A throwaway PostgreSQL server. The first test that needs it starts it, and it ends with the test process.

use std::io::{BufRead, BufReader, ErrorKind};
use std::mem::forget;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self as unix, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use tokio::net::TcpSocket;

use crate::process::Keeper;
use crate::wait::{TIMEOUT, within};

/// Runs a server until stdin closes, which also happens when the test process is killed.
///
/// PostgreSQL refuses to run as root, so its folder must be outside folders that only root can read.
const SCRIPT: &str = r#"
set -eu
bin=$1 port=$2 primary=$3
# In memory, if there is enough: each database has 300 files, and creating them takes most of the time of many tests.
free=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo) most=$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)
[ -w /dev/shm ] && [ "$free" -gt 4000000 ] && [ "${most:-0}" -gt 2000000 ] && parent=/dev/shm || parent=/tmp
dir=$(mktemp -d "$parent/petstore-postgres.XXXXXX")
stop() {
    "$bin/pg_ctl" -D "$dir/data" -m immediate -w stop >/dev/null 2>&1 || true
    rm -rf "$dir"
}
trap stop EXIT
# PIPE: if the test process is killed while the server starts, nobody reads its folder.
trap '' INT TERM HUP PIPE
{
    if [ -z "$primary" ]; then
        "$bin/initdb" -D "$dir/data" -U petstore -A trust --no-sync -E UTF8 --locale=C
    else
        "$bin/pg_basebackup" -D "$dir/data" -d "$primary" --no-sync --checkpoint=fast --write-recovery-conf
    fi
    cat >>"$dir/data/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = '$dir'
max_connections = 400
max_wal_size = 128MB
# In its folder, which is removed even if the server was killed.
dynamic_shared_memory_type = mmap
# No test cuts the power of this server.
fsync = off
CONF
    "$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -w -t 180 start
} >"$dir/start.log" 2>&1 || { cat "$dir/start.log" "$dir/log" >&2; exit 1; }
echo "$dir"
cat >/dev/null
"#;

pub struct PostgresServer {
    port: u16,
    /// Holds `data` and the log.
    pub folder: PathBuf,
    bin: PathBuf,
    databases: AtomicU32,
    _keeper: Keeper,
}

impl PostgresServer {
    /// The server that the tests of this process share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// A server for one test, which may damage it. Stopped on drop.
    pub fn start() -> Self {
        Self::start_from("", free_port())
    }

    /// A standby of this server.
    pub fn standby(&self) -> Self {
        self.standby_at(free_port())
    }

    /// A standby of this server that listens on a port which is free.
    pub fn standby_at(&self, port: u16) -> Self {
        Self::start_from(&self.url("postgres"), port)
    }

    /// A standby that reaches this server through a network, at a port of its own.
    pub fn standby_through(&self, port: u16) -> Self {
        Self::start_from(&format!("postgres://petstore@127.0.0.1:{port}/postgres"), free_port())
    }

    fn start_from(primary: &str, port: u16) -> Self {
        let bin = binaries();
        let mut command = unprivileged();
        command.args(["sh", "-c", SCRIPT, "sh"]).arg(&bin).arg(port.to_string()).arg(primary);
        let mut keeper = command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut folder = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut folder).unwrap();
        assert!(!folder.is_empty(), "PostgreSQL does not start");
        Self { port, folder: folder.trim().into(), bin, databases: AtomicU32::new(0), _keeper: Keeper(keeper) }
    }

    /// Creates a database and returns its URL.
    pub fn database(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// Drops the database with this URL.
    pub fn remove(&self, url: &str) {
        let name = url.rsplit('/').next().unwrap();
        self.sql("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://petstore@127.0.0.1:{}/{database}", self.port)
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Runs SQL with psql. Returns a line for each row, columns separated by `|`.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        query(&self.url(database), sql)
    }

    /// Runs `pg_ctl` and waits until it is done.
    pub fn control(&self, arguments: &[&str]) {
        let mut command = unprivileged();
        command.arg(self.bin.join("pg_ctl")).arg("-D").arg(self.folder.join("data")).arg("-w").arg("-l");
        let status = command.arg(self.folder.join("log")).args(arguments).stdout(Stdio::null()).status().unwrap();
        assert!(status.success(), "pg_ctl {arguments:?}");
    }

    /// Requires a password from connections over the network.
    pub fn require_passwords(&self) {
        let rules = "host all all 127.0.0.1/32 scram-sha-256";
        let file = self.folder.join("data/pg_hba.conf");
        std::fs::write(file, rules).unwrap();
        self.control(&["reload"]);
    }

    /// Requires TLS from connections over the network, with this certificate.
    pub fn require_tls(&self, certificate: &Path, key: &Path) {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
        let data = self.folder.join("data");
        let owner = data.metadata().unwrap();
        for (from, to) in [(certificate, "server.crt"), (key, "server.key")] {
            let to = data.join(to);
            std::fs::copy(from, &to).unwrap();
            std::fs::set_permissions(&to, PermissionsExt::from_mode(0o600)).unwrap();
            chown(&to, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        self.set("ssl", "on");
        std::fs::write(data.join("pg_hba.conf"), "hostssl all all 127.0.0.1/32 trust").unwrap();
        self.control(&["reload"]);
    }

    /// Cancels commits that wait for a synchronous standby. PostgreSQL then reports success, with a warning. Returns the
    /// number of cancelled waits.
    pub fn cancel_waits_for_standbys(&self) -> u32 {
        let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        self.sql("postgres", cancel).parse().unwrap()
    }

    pub fn set(&self, name: &str, value: &str) {
        self.sql("postgres", &format!("ALTER SYSTEM SET {name} = '{value}'"));
        self.sql("postgres", "SELECT pg_reload_conf()");
    }
}

/// A port that is still free when a server restarts: it is below the ephemeral range, and no other test gets it before this
/// process ends.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id().wrapping_mul(31).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + (next % 10_000) as u16;
        let name = unix::SocketAddr::from_abstract_name(format!("petstore-test-{port}")).unwrap();
        let claim = UnixDatagram::bind_addr(&name);
        if claim.as_ref().is_err_and(|error| error.kind() == ErrorKind::AddrInUse) {
            continue;
        }
        // Does not listen, because a child that another thread forks meanwhile has the socket until it executes its program.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        if socket.bind(SocketAddr::from(([127, 0, 0, 1], port))).is_ok() {
            // Until the process ends.
            forget(claim.unwrap());
            return port;
        }
    }
}

/// Creates a database on the shared server and returns its URL.
pub fn database() -> String {
    PostgresServer::shared().database()
}

/// Runs SQL with psql and returns its output.
pub fn query(url: &str, sql: &str) -> String {
    try_query(url, sql).unwrap_or_else(|why| panic!("{sql}: {why}"))
}

/// Runs SQL with psql and returns its output, or its error output.
pub fn try_query(url: &str, sql: &str) -> Result<String, String> {
    let mut psql = Command::new(binaries().join("psql"));
    psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "-d", url, "-c", sql]);
    let output = psql.output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap().trim_end().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The number of sessions of the database at `url` that fulfil a condition on `pg_stat_activity`.
pub fn sessions(url: &str, condition: &str) -> usize {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()";
    query(url, &format!("{count} AND {condition}")).parse().unwrap()
}

/// A transaction that keeps its locks until it is released.
pub struct OpenTransaction {
    url: String,
    psql: JoinHandle<Result<String, String>>,
}

impl OpenTransaction {
    const SLEEPING: &str = "wait_event = 'PgSleep'";

    /// Begins a transaction and waits until it has executed `sql`.
    pub fn begin(url: &str, sql: &str) -> Self {
        let (url, sql) = (url.to_owned(), format!("BEGIN; {sql}; SELECT pg_sleep(60); COMMIT"));
        let psql = thread::spawn({
            let url = url.clone();
            move || try_query(&url, &sql)
        });
        within(TIMEOUT, "beginning a transaction", || sessions(&url, Self::SLEEPING) == 1);
        Self { url, psql }
    }

    /// Rolls back. Fails if the transaction has already ended.
    pub fn release(self) {
        assert!(!self.psql.is_finished(), "{:?}", self.psql.join());
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()";
        query(&self.url, &format!("{end} AND {}", Self::SLEEPING));
        self.psql.join().unwrap().unwrap_err();
    }
}

/// The programs of the newest installed version.
///
/// # Panics
///
/// Panics if PostgreSQL is not installed.
pub fn binaries() -> PathBuf {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = installed
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists())
        .max();
    newest.expect("PostgreSQL's server is not installed: run scripts/test, which installs it").1
}

/// The start of a command that does not run as root.
pub fn unprivileged() -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new("env");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    command
}
