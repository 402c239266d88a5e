//! The processes of a soak, each with its own ports, clock and log file, and their resources.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

use testkit::postgres::free_port;
use testkit::{Certificate, Database, Process, Request, TIMEOUT, within};
use verification::FakeClock;
use verification::load::percentile;

use crate::soak_judge::Sample;
use crate::soak_load::Traffic;

/// Requests between two samples from which a percentile means something.
const MEASURABLE: usize = 20;

/// A process that is restarted at the same addresses.
pub struct Instance {
    pub log: PathBuf,
    database: Database,
    addresses: [SocketAddr; 3],
    /// `None` without TLS.
    certificate: Option<(PathBuf, PathBuf)>,
    process: Option<Process>,
    life: u32,
    pub clock: FakeClock,
}

impl Instance {
    pub fn new(database: &Database, log: PathBuf, certificate: Option<&Certificate>) -> Self {
        Self {
            clock: FakeClock::new(),
            log,
            database: database.clone(),
            addresses: [(); 3].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port()))),
            certificate: certificate.map(|certificate| (certificate.file.clone(), certificate.key.clone())),
            process: None,
            life: 0,
        }
    }

    /// The addresses of the store and messages listeners.
    pub const fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.addresses[0], self.addresses[1])
    }

    pub const fn process(&self) -> &Process {
        self.process.as_ref().expect("it was started")
    }

    /// Starts the process. Its log is appended to the file, as by a supervisor.
    pub fn start(&mut self, traffic: &Traffic) {
        let [store, messages, operations] = self.addresses;
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"exec "$@" 2>>"$0""#]).arg(&self.log);
        let mut command = self.database.petstore_by(shell, "serve --log-requests");
        command.arg(format!("--listen={store}")).arg(format!("--messages-listen={messages}"));
        command.arg(format!("--ops-listen={operations}"));
        if let Some((file, key)) = &self.certificate {
            command.arg("--tls-cert").arg(file).arg("--tls-key").arg(key);
        }
        self.clock.preload(&mut command);
        self.process = Some(Process::start_with_stdout(&mut command, Stdio::null()));
        self.life += 1;
        within(TIMEOUT, "starting", || {
            traffic
                .exchange(store, Request::new(store, "GET", "/readyz"))
                .is_ok_and(|response| response.status() == 200)
        });
    }

    /// Stops the process with SIGTERM. Records another exit status than 0.
    pub fn stop(&mut self, traffic: &Traffic) {
        let mut process = self.process.take().expect("it was started");
        let ended = process.stop();
        if !ended.success() {
            traffic.violation(format!("the process ended with {ended}"));
        }
    }

    /// Copies the log to `log.1` and truncates it, like logrotate's `copytruncate`. Records a line that is not JSON, and a
    /// log that does not continue.
    pub fn rotate_log(&self, traffic: &Traffic) {
        let old = self.log.with_extension("1");
        fs::copy(&self.log, &old).unwrap();
        File::options().write(true).open(&self.log).unwrap().set_len(0).unwrap();
        within(TIMEOUT, "continuing the log", || self.log.metadata().unwrap().len() > 0);
        let text = fs::read_to_string(old).unwrap();
        // The first and the last line may have been cut off by the rotations.
        let mut lines: Vec<_> = text.lines().skip(1).collect();
        lines.pop();
        if let Some(line) = lines.iter().find(|line| serde_json::from_str::<serde_json::Value>(line).is_err()) {
            traffic.violation(format!("a line of the log is not JSON: {line}"));
        }
    }

    pub fn sample(&self, began: Instant, traffic: &Traffic) -> Option<Sample> {
        let process = self.process.as_ref()?;
        let latencies = traffic.take_latencies();
        let descriptors = fs::read_dir(format!("/proc/{}/fd", process.pid())).map(Iterator::count).ok()?;
        Some(Sample {
            at: began.elapsed(),
            life: self.life,
            memory: process.memory(),
            descriptors,
            wal: self.wal(),
            latency: (latencies.len() >= MEASURABLE).then(|| percentile(&latencies, 99)),
            requests: traffic.requests.load(Ordering::Relaxed) as usize,
        })
    }

    /// Bytes of the write-ahead log. Zero on PostgreSQL.
    fn wal(&self) -> u64 {
        if self.database.is_embedded() {
            self.database.file("petstore.db-wal").metadata().map_or(0, |file| file.len())
        } else {
            0
        }
    }
}

/// Waits until a process uses a certificate for new connections.
pub fn wait_until_presented(authority: &Certificate, address: SocketAddr, certificate: &Certificate) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    within(TIMEOUT, "using the new certificate", || {
        let stream = runtime.block_on(authority.try_connect(address, rustls::ALL_VERSIONS));
        stream.is_ok_and(|stream| {
            let presented = stream.get_ref().1.peer_certificates();
            presented.is_some_and(|chain| chain.first() == Some(&certificate.der))
        })
    });
}
