//! A throwaway PostgreSQL server for tests: started by the first test of a process that asks, gone with the process.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use petstore::store::postgres::DatabaseUrl;

/// Runs a server until its standard input ends, which it does with whoever started it, be it by `kill -9`.
///
/// PostgreSQL refuses to run as root, and a folder of its own can't lie in one that is root's alone.
const SCRIPT: &str = r#"
set -eu
bin=$1 port=$2; shift 2
dir=$(mktemp -d /tmp/petstore-postgres.XXXXXX)
stop() {
    [ ! -s "$dir/data/postmaster.pid" ] || kill -s CONT $(head -1 "$dir/data/postmaster.pid") 2>/dev/null || true
    "$bin/pg_ctl" -D "$dir/data" -m immediate -w stop >/dev/null 2>&1 || true
    rm -rf "$dir"
}
trap stop EXIT
trap '' INT TERM HUP
"$bin/initdb" -D "$dir/data" -U petstore -A trust --no-sync --no-instructions -E UTF8 --locale=C >"$dir/initdb.log" 2>&1 ||
    { cat "$dir/initdb.log" >&2; exit 1; }
cat >>"$dir/data/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = '$dir'
max_connections = 400
# What is tested here is not the machine's power supply.
fsync = off
CONF
"$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -w -t 60 start >/dev/null || { cat "$dir/log" >&2; exit 1; }
echo "$dir"
cat >/dev/null
"#;

pub struct Server {
    port: u16,
    /// Holds `data` and the log.
    pub folder: PathBuf,
    bin: PathBuf,
    databases: AtomicU32,
    /// Its standard input is what the server lives by.
    keeper: Child,
}

impl Server {
    /// The server that the tests of this process share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// A server that a test has for itself, to do it harm. It is gone with this value.
    pub fn start() -> Self {
        let bin = binaries();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = as_somebody();
        command.args(["sh", "-c", SCRIPT, "sh"]).arg(&bin).arg(port.to_string());
        let mut keeper = command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut folder = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut folder).unwrap();
        assert!(!folder.is_empty(), "PostgreSQL does not start");
        Self { port, folder: folder.trim().into(), bin, databases: AtomicU32::new(0), keeper }
    }

    /// A new database of this server: its address.
    pub fn database(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://petstore@127.0.0.1:{}/{database}", self.port)
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What psql prints: a line for each row, columns separated by `|`.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        query(&self.url(database), sql)
    }

    /// Runs a program of PostgreSQL's as the user the server runs as.
    pub fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = as_somebody();
        let status = command.arg(self.bin.join(program)).args(arguments).stdout(Stdio::null()).status().unwrap();
        assert!(status.success(), "{program} {arguments:?}");
    }

    /// The process that all others of the server are children of.
    pub fn pid(&self) -> i32 {
        let file = std::fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap();
        file.lines().next().unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// The address of a new database of the shared server.
pub fn database() -> DatabaseUrl {
    DatabaseUrl::parse(&Server::shared().database()).unwrap()
}

/// What psql prints.
pub fn query(url: &str, sql: &str) -> String {
    let mut psql = Command::new(binaries().join("psql"));
    psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "-d", url, "-c", sql]);
    let output = psql.output().unwrap();
    assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// The newest of the installed versions. A machine without any fails the test.
fn binaries() -> PathBuf {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = installed
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists())
        .max();
    newest.expect("PostgreSQL's server is not installed: run scripts/test, which installs it").1
}

/// The beginning of a command that is not run as root.
fn as_somebody() -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new("env");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    command
}
