//! Promise 39: nothing outside the process can stall it. While a pipe, a server, a resolver or a file is blocked, the process
//! responds to health checks and ends on SIGTERM.

use std::any::Any;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use testkit::postgres::free_port;
use testkit::{
    Certificate, Database, PostgresServer, Process, Request, Response, Signal, TIMEOUT, new_message, new_pet, trial,
    within,
};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::neighbours::{self, HangingFile};

/// Maximum time for a response to a health check. Short runs do not judge time.
pub fn health_limit() -> Duration {
    if trial::is_full() { Duration::from_secs(1) } else { TIMEOUT }
}

/// Maximum time from SIGTERM to the end without clients: 3 s for the last spans, 10 s for the relay, 1 s for reads of
/// files and names, and 3 s for the log. Short runs do not judge time.
pub fn stop_limit() -> Duration {
    if trial::is_full() { Duration::from_secs(17) } else { TIMEOUT }
}

/// Number of rounds of health checks beside a blocked neighbour.
const CHECKS: u32 = 3;

#[test]
fn blocked_neighbours_stall_no_health_check_and_no_stop() {
    let rounds = trial::rounds(1);
    let (mut slowest, mut longest) = ((Duration::ZERO, ""), (Duration::ZERO, ""));
    // More at once would keep all processors busy, and time is judged on an idle machine.
    let at_once = if trial::is_full() { 3 } else { neighbours::ALL.len() };
    for _ in trial::counted(rounds) {
        for group in neighbours::ALL.chunks(at_once) {
            thread::scope(|scope| {
                let threads = group.iter().map(|&(name, start)| {
                    let thread = thread::Builder::new().name(name.to_owned());
                    (name, thread.spawn_scoped(scope, move || measure(start())).unwrap())
                });
                for (name, thread) in threads.collect::<Vec<_>>() {
                    let (check, stop) = thread.join().unwrap_or_else(|_| panic!("it is stalled by: {name}"));
                    slowest = slowest.max((check, name));
                    longest = longest.max((stop, name));
                }
            });
        }
    }
    suspended_process_is_noticed();
    trial::measured(&format!(
        "{rounds} rounds beside {} blocked neighbours: health checks and metrics within {:?} ({}); the end within {:?} of \
         SIGTERM ({}); a suspended process is noticed",
        neighbours::ALL.len(),
        slowest.0,
        slowest.1,
        longest.0,
        longest.1,
    ));
}

/// Returns the time of the slowest health check, and the time from SIGTERM to the end.
fn measure(mut service: Service) -> (Duration, Duration) {
    service.work();
    within(TIMEOUT, "blocking", || (service.is_blocked)());
    let slowest = (0..CHECKS).map(|_| {
        service.work();
        service.check(health_limit()).unwrap()
    });
    let slowest = slowest.max().unwrap();
    assert!((service.is_blocked)(), "it is blocked until the end");
    (slowest, service.stop(stop_limit()).unwrap())
}

#[test]
fn start_ends_on_sigterm_while_its_certificate_hangs() {
    let rounds = trial::rounds(1);
    let mut longest = Duration::ZERO;
    for _ in trial::counted(rounds) {
        let folder = tempfile::tempdir().unwrap();
        let (database, url) = (Database::temporary(), PostgresServer::shared().database());
        for number in 0..2 {
            let mut hanging = HangingFile::at(folder.path().join(number.to_string()));
            let file = hanging.path().display();
            let mut serve = match number {
                0 => database.serve_command(&format!("--tls-cert {file} --tls-key {file}")),
                _ => Database::url(format!("{url}?sslmode=verify-full&sslrootcert={file}")).serve_command(""),
            };
            let process = Process::start(&mut serve);
            within(TIMEOUT, "reading the file", || hanging.is_read());
            let stopping = Instant::now();
            process.signal(Signal::TERM);
            let ended = process.end();
            longest = longest.max(stopping.elapsed());
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
    }
    trial::judge("the end", longest, stop_limit());
    trial::measured(&format!(
        "{} starts beside a certificate that hangs: the end within {longest:?} of SIGTERM",
        2 * rounds
    ));
}

/// Control: the same checks notice a suspended process.
fn suspended_process_is_noticed() {
    let mut service = Service::start(&Database::temporary(), "serve", |_| {});
    service.check(health_limit()).unwrap();
    service.process.suspend();
    service.check(Duration::from_secs(1)).unwrap_err();
    service.stop(Duration::from_secs(1)).unwrap_err();
}

/// A process beside a neighbour.
pub struct Service {
    pub process: Process,
    pub store: SocketAddr,
    messages: SocketAddr,
    pub operations: SocketAddr,
    /// `None` without TLS.
    certificate: Option<Certificate>,
    /// `None` if the neighbour is the database. Otherwise requests must succeed.
    pub key: Option<String>,
    /// Returns true if the process waits for the neighbour.
    pub is_blocked: Box<dyn FnMut() -> bool + Send>,
    /// Resources that the neighbour needs until the end.
    pub kept: Box<dyn Any + Send>,
    _database: Database,
    runtime: Runtime,
}

impl Service {
    /// Starts a command that serves, and waits until it responds.
    pub fn start(database: &Database, command: &str, configure: impl FnOnce(&mut Command)) -> Self {
        let mut command = database.petstore(command);
        configure(&mut command);
        Self::start_with(database, command, Stdio::null(), None)
    }

    pub fn start_with(
        database: &Database,
        mut command: Command,
        stdout: Stdio,
        certificate: Option<Certificate>,
    ) -> Self {
        // Chosen here, because the log cannot be read if stderr is blocked.
        let [store, messages, operations] = [(); 3].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
        command.arg(format!("--listen={store}")).arg(format!("--messages-listen={messages}"));
        command.arg(format!("--ops-listen={operations}"));
        let process = Process::start_with_stdout(&mut command, stdout);
        let service = Self {
            process,
            store,
            messages,
            operations,
            certificate,
            key: None,
            is_blocked: Box::new(|| true),
            kept: Box::new(()),
            _database: database.clone(),
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
        };
        // Before it creates a database, the process listens for a moment to check the addresses. Once it responds, it needs the
        // database only for requests, and handles signals.
        within(TIMEOUT, "serving", || {
            service.try_send(operations, Request::new(operations, "GET", "/livez"), TIMEOUT).unwrap().is_ok()
        });
        service
    }

    /// Creates an animal, lists animals and sends a message, unless the database is blocked.
    pub fn work(&self) {
        let Some(key) = &self.key else { return };
        let send = |address, method, path, body: String| {
            let request = Request::new(address, method, path).key(key).json(body);
            self.send(address, request, TIMEOUT).unwrap().status()
        };
        assert_eq!(send(self.store, "POST", "/v1/pets", new_pet("Rex")), 201);
        assert_eq!(send(self.store, "GET", "/v1/pets?limit=1", String::new()), 200);
        assert_eq!(send(self.messages, "POST", "/v1/messages", new_message("Hello")), 202);
    }

    /// Sends every health check to every listener. Returns the time of the slowest.
    fn check(&self, limit: Duration) -> Result<Duration, String> {
        let listeners = [self.store, self.messages, self.operations];
        let checks = listeners.into_iter().flat_map(|listener| [(listener, "/livez"), (listener, "/readyz")]);
        let mut slowest = Duration::ZERO;
        for (listener, path) in checks.chain([(self.operations, "/metrics")]) {
            let began = Instant::now();
            let send = || self.send(listener, Request::new(listener, "GET", path), limit);
            let mut response = send().map_err(|why| format!("{path}: {why}"))?;
            let may_be_503 = path == "/readyz" && self.key.is_none();
            // On a busy machine, a check of the database may be late.
            let may_repeat = path == "/readyz" && self.key.is_some() && !trial::is_full();
            while may_repeat && response.status() == 503 && began.elapsed() < limit {
                response = send()?;
            }
            if response.status() != 200 && !(may_be_503 && response.status() == 503) {
                return Err(format!("{path}: {response:?}"));
            }
            slowest = slowest.max(began.elapsed());
        }
        Ok(slowest)
    }

    /// Sends a request over a connection of its own. Fails if there is no response within `limit`.
    ///
    /// # Panics
    ///
    /// Panics if the connection breaks.
    pub fn send(&self, address: SocketAddr, request: Request, limit: Duration) -> Result<Response, String> {
        Ok(self.try_send(address, request, limit)?.unwrap())
    }

    /// Like [`Self::send`], but returns the error of a connection that breaks.
    fn try_send(&self, address: SocketAddr, request: Request, limit: Duration) -> Result<io::Result<Response>, String> {
        let response = async {
            let response = match &self.certificate {
                None => request.try_send_over(TcpStream::connect(address).await?).await,
                Some(certificate) => {
                    request.try_send_over(certificate.try_connect(address, rustls::ALL_VERSIONS).await?).await
                }
            };
            response.map_err(io::Error::other)
        };
        let response = self.runtime.block_on(async { timeout(limit, response).await });
        response.map_err(|_| format!("no response within {limit:?}"))
    }

    /// Sends SIGTERM. Returns the time until the process has ended.
    fn stop(&mut self, limit: Duration) -> Result<Duration, String> {
        let took = self.terminate(limit)?;
        let status = self.process.ended(TIMEOUT);
        if status.success() { Ok(took) } else { Err(status.to_string()) }
    }

    /// Sends SIGTERM. Returns the time until the process exits. A tracer or the kernel may still hold one of its threads.
    pub fn terminate(&self, limit: Duration) -> Result<Duration, String> {
        self.process.signal(Signal::TERM);
        let began = Instant::now();
        while !has_ended(self.process.pid()) {
            if began.elapsed() > limit {
                return Err(format!("SIGTERM does not end it within {limit:?}"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(began.elapsed())
    }
}

/// Returns whether the main thread of a child process has ended.
fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('Z')
}
