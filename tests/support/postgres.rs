//! A throwaway PostgreSQL server for tests: started by the first test of a process that asks, gone with the process.

#![expect(dead_code, reason = "each test binary uses a part of it")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use petstore::store::postgres::DatabaseUrl;

/// Runs a server until its standard input ends, which it does with whoever started it, be it by `kill -9`.
///
/// PostgreSQL refuses to run as root, and a folder of its own can't lie in one that is root's alone.
const SCRIPT: &str = r#"
set -eu
bin=$1 port=$2 primary=$3
dir=$(mktemp -d /tmp/petstore-postgres.XXXXXX)
stop() {
    "$bin/pg_ctl" -D "$dir/data" -m immediate -w stop >/dev/null 2>&1 || true
    rm -rf "$dir"
}
trap stop EXIT
trap '' INT TERM HUP
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
# What is tested here is not the machine's power supply.
fsync = off
CONF
    "$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -w -t 60 start
} >"$dir/start.log" 2>&1 || { cat "$dir/start.log" "$dir/log" >&2; exit 1; }
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
        Self::start_from("")
    }

    /// A standby of this server.
    pub fn standby(&self) -> Self {
        Self::start_from(&self.url("postgres"))
    }

    fn start_from(primary: &str) -> Self {
        let bin = binaries();
        let port = free_port();
        let mut command = as_somebody();
        command.args(["sh", "-c", SCRIPT, "sh"]).arg(&bin).arg(port.to_string()).arg(primary);
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

    /// Removes a database of this server, by its address.
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

    /// What psql prints: a line for each row, columns separated by `|`.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        query(&self.url(database), sql)
    }

    /// `pg_ctl`, which also waits until it is done.
    pub fn control(&self, arguments: &[&str]) {
        let mut command = as_somebody();
        command.arg(self.bin.join("pg_ctl")).arg("-D").arg(self.folder.join("data")).arg("-w").arg("-l");
        let status = command.arg(self.folder.join("log")).args(arguments).stdout(Stdio::null()).status().unwrap();
        assert!(status.success(), "pg_ctl {arguments:?}");
    }

    /// From now on, connections over the network need a password.
    pub fn require_passwords(&self) {
        let rules = "host all all 127.0.0.1/32 scram-sha-256";
        let file = self.folder.join("data/pg_hba.conf");
        std::fs::write(file, rules).unwrap();
        self.control(&["reload"]);
    }

    /// From now on, connections over the network must be encrypted, and the server has this certificate.
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

    pub fn set(&self, name: &str, value: &str) {
        self.sql("postgres", &format!("ALTER SYSTEM SET {name} = '{value}'"));
        self.sql("postgres", "SELECT pg_reload_conf()");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// A port below those that systems give to clients: a server that was stopped must find it free when it starts again.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id().wrapping_mul(31).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + (next % 10_000) as u16;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The address of a new database of the shared server.
pub fn database() -> DatabaseUrl {
    DatabaseUrl::parse(&Server::shared().database()).unwrap()
}

/// What psql prints.
pub fn query(url: &str, sql: &str) -> String {
    try_query(url, sql).unwrap_or_else(|why| panic!("{sql}: {why}"))
}

/// What psql prints, or what it complains of.
pub fn try_query(url: &str, sql: &str) -> Result<String, String> {
    let mut psql = Command::new(binaries().join("psql"));
    psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "-d", url, "-c", sql]);
    let output = psql.output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap().trim_end().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The newest of the installed versions. A machine without any fails the test.
pub fn binaries() -> PathBuf {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = installed
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists())
        .max();
    newest.expect("PostgreSQL's server is not installed: run scripts/test, which installs it").1
}

/// The beginning of a command that is not run as root.
pub fn as_somebody() -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new("env");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    command
}
