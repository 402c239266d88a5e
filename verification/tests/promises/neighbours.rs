//! The neighbours that a process depends on, each of them blocked: pipes, servers, the resolver, and files on a mount that
//! hangs.

use std::fs::{self, File};
use std::io::{ErrorKind, PipeReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, mknodat};
use rustix::io::ioctl_fionread;
use tempfile::TempDir;
use testkit::postgres::query;
use testkit::relayed::SECRET;
use testkit::{Certificate, Database, Endpoint, PostgresServer, Process, Shop, Signal, TIMEOUT, within};
use verification::Network;

use crate::blocked::Service;

/// Starts a process beside a blocked neighbour.
type Start = fn() -> Service;

/// Each neighbour, and a function that starts a process beside it.
pub const ALL: [(&str, Start); 14] = [
    ("stderr", stderr),
    ("stdout", stdout),
    ("the pipe of an export", export),
    ("the supervisor", supervisor),
    ("the collector", collector),
    ("the collector's name", name_of_collector),
    ("the certificate of the collector's authority", authority_of_collector),
    ("the receiver of messages", receiver),
    ("the connected receiver of messages", connected_receiver),
    ("the receiver's name", name_of_receiver),
    ("PostgreSQL", postgres),
    ("the name of one of PostgreSQL's hosts", name_of_postgres),
    ("the certificate", certificate),
    ("the certificate of PostgreSQL's authority", authority_of_postgres),
];

fn stderr() -> Service {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("stderr");
    make_fifo(&fifo);
    let mut full = File::options().read(true).write(true).open(&fifo).unwrap();
    fill(&mut full);
    let Shop { database, key } = Shop::on_sqlite();
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec "$@" 2>"$0""#]).arg(&fifo);
    let mut service = Service::start(&database.wrapped_by(&shell), "serve --log-requests", |_| {});
    service.key = Some(key);
    service.is_blocked = Box::new(move || ioctl_fionread(&full).unwrap() >= PIPE);
    service
}

fn stdout() -> Service {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut full = File::from(OwnedFd::from(writer));
    fill(&mut full);
    let database = Database::temporary();
    let mut service = Service::start_with(&database, database.petstore("quickstart"), full.into(), None);
    service.key = Some(fs::read_to_string(database.file("quickstart.key")).unwrap().trim().to_owned());
    service.is_blocked = Box::new(move || is_full(&reader));
    service
}

fn export() -> Service {
    let database = Database::temporary();
    let mut service = serve(&database, "", |_| {});
    let file = database.file("animals.ndjson");
    fs::write(&file, "{\"name\":\"Rex\",\"categoryId\":1}\n".repeat(10_000)).unwrap();
    database.run(&format!("pets import {}", file.display()));
    let (reader, writer) = std::io::pipe().unwrap();
    let export = Process::start_with_stdout(&mut database.petstore("pets export"), writer.into());
    service.is_blocked = Box::new(move || is_full(&reader));
    service.kept = Box::new(export);
    service
}

/// The socket for notifications of systemd accepts no more data.
fn supervisor() -> Service {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let supervisor = UnixDatagram::bind(&path).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    sender.connect(&path).unwrap();
    let is_full = move || sender.send(b"STATUS=").is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    while !is_full() {}
    let mut service = serve(&Database::temporary(), "", |command| _ = command.env("NOTIFY_SOCKET", path));
    service.is_blocked = Box::new(is_full);
    service.kept = Box::new((folder, supervisor));
    service
}

/// The collector accepts connections and does not respond.
fn collector() -> Service {
    let (address, has_client) = silent_server();
    let mut service = serve(&Database::temporary(), "", trace_to(&address.to_string()));
    service.is_blocked = has_client;
    service
}

fn name_of_collector() -> Service {
    with_hanging_names(&Database::temporary(), "", trace_to("collector.test:4318"))
}

fn authority_of_collector() -> Service {
    let folder = tempfile::tempdir().unwrap();
    let mut hanging = HangingFile::at(folder.path().join("authority.pem"));
    let mut service = serve(&Database::temporary(), "", |command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1");
        command.env("OTEL_EXPORTER_OTLP_CERTIFICATE", hanging.path());
    });
    service.is_blocked = Box::new(move || hanging.is_read());
    service.kept = Box::new(folder);
    service
}

/// The web server that receives messages accepts connections and does not respond.
fn receiver() -> Service {
    let (address, has_client) = silent_server();
    let (folder, relay) = relay_to(&format!("http://{address}/"));
    let mut service = serve(&Database::temporary(), &relay, |_| {});
    service.is_blocked = has_client;
    service.kept = Box::new(folder);
    service
}

/// The web server stops responding while it is connected.
fn connected_receiver() -> Service {
    let endpoint = Endpoint::acknowledging();
    let network = Network::to(endpoint.address.port());
    let database = Database::temporary();
    let (folder, relay) = relay_to(&format!("http://127.0.0.1:{}/", network.port()));
    let mut service = serve(&database, &relay, |_| {});
    service.work();
    within(TIMEOUT, "relaying", || database.sql("SELECT count(*) FROM messages WHERE sent_at IS NULL") == "0");
    network.silence(true);
    service.kept = Box::new((endpoint, network, folder));
    service
}

fn name_of_receiver() -> Service {
    let (folder, relay) = relay_to("https://receiver.test/");
    let mut service = with_hanging_names(&Database::temporary(), &relay, |_| {});
    service.kept = Box::new((service.kept, folder));
    service
}

/// Flags of a relay to `url`, and the folder of its secrets.
fn relay_to(url: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let secrets = folder.path().join("secrets");
    fs::write(&secrets, SECRET).unwrap();
    (folder, format!("--relay {url} --relay-secret-file {}", secrets.display()))
}

fn postgres() -> Service {
    let server = PostgresServer::shared();
    let network = Network::to(server.port());
    let service =
        Service::start(&Database::url(network.url(&server.database())).with_default_timeout(), "serve", |_| {});
    network.silence(true);
    service
}

/// The URL has two hosts: an address, and a name whose lookup hangs.
fn name_of_postgres() -> Service {
    let url = PostgresServer::shared().database();
    let (start, name) = url.rsplit_once('/').unwrap();
    let database = Database::url(format!("{start},postgres.test:5432/{name}"));
    // The start waits for the other host for 10/18 of the timeout.
    with_hanging_names(&database.with_timeout("20s"), "", |_| {})
}

/// The certificate is renewed on a mount that hangs.
fn certificate() -> Service {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::of_localhost(folder.path(), "server");
    let Shop { database, key } = Shop::on_sqlite();
    let mut command = database.petstore("serve");
    command.arg("--tls-cert").arg(&certificate.file).arg("--tls-key").arg(&certificate.key);
    let hanging = folder.path().join("hanging");
    fs::copy(&certificate.file, &hanging).unwrap();
    let (asked, lease) = lease(&hanging);
    let file = certificate.file.clone();
    let mut service = Service::start_with(&database, command, Stdio::null(), Some(certificate));
    service.key = Some(key);
    fs::rename(&hanging, file).unwrap();
    service.process.signal(Signal::HUP);
    service.is_blocked = Box::new(move || asked.exists());
    service.kept = Box::new((folder, lease));
    service
}

/// All connections are lost, and the certificate that the next ones need is on a mount that hangs.
fn authority_of_postgres() -> Service {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::of_localhost(folder.path(), "postgres");
    let server = SERVER.get_or_init(PostgresServer::start);
    server.require_tls(&certificate.file, &certificate.key);
    let url = server.database();
    let database = Database::url(format!("{url}?sslmode=verify-full&sslrootcert={}", certificate.file.display()));
    let database = database.with_default_timeout();
    let mut service = Service::start(&database, "serve", |_| {});
    let mut hanging = HangingFile::at(folder.path().join("hanging"));
    hanging.replace(certificate.file);
    let others = "datname = current_database() AND pid <> pg_backend_pid()";
    query(&url, &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"));
    service.is_blocked = Box::new(move || hanging.is_read());
    service.kept = Box::new(folder);
    service
}

/// Serves a database that is not blocked.
fn serve(database: &Database, flags: &str, configure: impl FnOnce(&mut Command)) -> Service {
    let key = database.make_key();
    let mut service = Service::start(database, &format!("serve {flags}"), configure);
    service.key = Some(key);
    service
}

/// Serves a database with a resolver that hangs: it reads its configuration from a mount that hangs.
fn with_hanging_names(database: &Database, flags: &str, configure: impl FnOnce(&mut Command)) -> Service {
    let folder = tempfile::tempdir().unwrap();
    let mut hanging = HangingFile::at(folder.path().join("resolv.conf"));
    let mut unshare = Command::new("unshare");
    // A user namespace allows the mount without root privileges.
    unshare.args(["--map-root-user", "--mount", "sh", "-c", r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#]);
    unshare.arg(&hanging.path);
    let key = database.make_key();
    let mut service = Service::start(&database.clone().wrapped_by(&unshare), &format!("serve {flags}"), configure);
    service.key = Some(key);
    service.is_blocked = Box::new(move || hanging.is_read());
    service.kept = Box::new(folder);
    service
}

fn trace_to(collector: &str) -> impl FnOnce(&mut Command) {
    let endpoint = format!("http://{collector}");
    move |command| _ = command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_BSP_SCHEDULE_DELAY", "50")
}

/// A server that accepts connections and does not respond. The function returns true once there is one.
fn silent_server() -> (SocketAddr, Box<dyn FnMut() -> bool + Send>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let mut clients = Vec::new();
    let has_client = move || {
        clients.extend(listener.accept().ok());
        !clients.is_empty()
    };
    (address, Box::new(has_client))
}

/// A file whose reader waits forever, as on a mount that hangs.
pub struct HangingFile {
    path: PathBuf,
    /// The writing end, opened once a reader waits. The test never writes to it.
    writer: Option<File>,
}

impl HangingFile {
    pub fn at(path: PathBuf) -> Self {
        make_fifo(&path);
        Self { path, writer: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the file to the name of another.
    pub fn replace(&mut self, other: PathBuf) {
        fs::rename(&self.path, &other).unwrap();
        self.path = other;
    }

    /// Returns whether a process reads the file.
    pub fn is_read(&mut self) -> bool {
        // Succeeds only if the other end is open.
        let open = || File::options().write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&self.path);
        self.writer = self.writer.take().or_else(|| open().ok());
        self.writer.is_some()
    }
}

/// Takes a write lease on a regular file (fcntl(2), F_SETLEASE), so that others wait when they open it: for 45 s, if
/// /proc/sys/fs/lease-break-time has its default. Returns a file that exists once somebody waits, and the lease.
fn lease(file: &Path) -> (PathBuf, Process) {
    const HOLD: &str = "
import fcntl, signal, sys
signal.signal(signal.SIGIO, lambda *_: open(sys.argv[1] + '.asked', 'w'))
file = open(sys.argv[1], 'r+')
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
open(sys.argv[1] + '.leased', 'w')
while True:
    signal.pause()";
    let [asked, leased] = ["asked", "leased"].map(|suffix| PathBuf::from(format!("{}.{suffix}", file.display())));
    let holder = Process::start(Command::new("python3").args(["-c", HOLD]).arg(file));
    within(TIMEOUT, "taking the lease", || leased.exists());
    (asked, holder)
}

fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// Bytes that a pipe holds.
const PIPE: u64 = 65_536;

fn fill(pipe: &mut File) {
    let flags = fcntl_getfl(&*pipe).unwrap();
    fcntl_setfl(&*pipe, flags | OFlags::NONBLOCK).unwrap();
    while pipe.write(&[b'x'; 4_096]).map_err(|error| error.kind()) != Err(ErrorKind::WouldBlock) {}
    fcntl_setfl(&*pipe, flags).unwrap();
}

fn is_full(pipe: &PipeReader) -> bool {
    ioctl_fionread(pipe).unwrap() >= PIPE
}
