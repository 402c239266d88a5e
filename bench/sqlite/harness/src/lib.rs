//! The same load on each library: tasks that add a row, wait until it is durable, and add the next one.
//!
//! `PROGRAM LIBRARY FOLDER TASKS` prints each acknowledged name until it is killed. With a number of seconds as a fourth
//! argument, it measures for as long and prints the figures as JSON; with `reads` as a fifth, tasks read meanwhile.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub const SCHEMA: &str = "CREATE TABLE guests (id INTEGER PRIMARY KEY, name TEXT NOT NULL)";
pub const INSERT: &str = "INSERT INTO guests (name) VALUES (?)";
pub const GET: &str = "SELECT name FROM guests WHERE id = ?";
/// What the libraries that set no pragmas of their own are told.
pub const PRAGMAS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 5000";
/// Connections that read, for libraries with a pool.
pub const READERS: usize = 3;

const WARM_UP: Duration = Duration::from_millis(500);
/// Tasks that read a row, and wait for this long.
const READING: usize = 16;
const PAUSE: Duration = Duration::from_millis(1);

/// A library. Failures panic, and so end the measurement.
pub trait Store: Send + Sync + 'static {
    /// Adds a row, and returns its id once it is durable.
    fn insert(&self, name: String) -> impl Future<Output = i64> + Send;
    fn get(&self, id: i64) -> impl Future<Output = String> + Send;
}

/// The arguments of the program.
pub struct Load {
    pub library: String,
    pub dir: PathBuf,
    tasks: usize,
    seconds: Option<u64>,
    reads: bool,
}

impl Load {
    pub fn from_arguments() -> Self {
        let mut arguments = std::env::args().skip(1);
        let mut next = |what| arguments.next().unwrap_or_else(|| panic!("{what} is missing"));
        let (library, dir) = (next("the library"), next("the folder").into());
        let tasks = next("the number of tasks").parse().unwrap();
        let seconds = arguments.next().map(|seconds| seconds.parse().unwrap());
        Self { library, dir, tasks, seconds, reads: arguments.next().is_some() }
    }

    pub async fn run(&self, store: impl Store) {
        let shared = Arc::new(Shared { store, next: AtomicI64::new(1), last: AtomicI64::new(0) });
        match self.seconds {
            None => shared.write_until_killed(self.tasks).await,
            Some(seconds) => shared.measure(self.tasks, seconds, self.reads).await,
        }
    }
}

struct Shared<S> {
    store: S,
    next: AtomicI64,
    /// The greatest acknowledged id.
    last: AtomicI64,
}

impl<S: Store> Shared<S> {
    async fn insert(&self) -> String {
        let name = format!("{:040}", self.next.fetch_add(1, Ordering::Relaxed));
        let id = self.store.insert(name.clone()).await;
        self.last.fetch_max(id, Ordering::Relaxed);
        name
    }

    async fn write_until_killed(self: Arc<Self>, tasks: usize) {
        let mut writing = JoinSet::new();
        for _ in 0..tasks {
            let shared = Arc::clone(&self);
            writing.spawn(async move {
                loop {
                    let line = format!("{}\n", shared.insert().await);
                    if std::io::stdout().write_all(line.as_bytes()).is_err() {
                        std::process::exit(1);
                    }
                }
            });
        }
        writing.join_all().await;
    }

    async fn measure(self: Arc<Self>, tasks: usize, seconds: u64, reads: bool) {
        self.insert().await;
        let start = Instant::now() + WARM_UP;
        let end = start + Duration::from_secs(seconds);
        let (mut writing, mut reading) = (JoinSet::new(), JoinSet::new());
        for _ in 0..tasks {
            let shared = Arc::clone(&self);
            writing.spawn(async move { shared.write_until(start, end).await });
        }
        for task in 0..if reads { READING as u64 } else { 0 } {
            let shared = Arc::clone(&self);
            reading.spawn(async move { shared.read_until(start, end, task).await });
        }
        let (inserts, reads) = (figures(writing.join_all().await), figures(reading.join_all().await));
        let rows = self.next.load(Ordering::Relaxed) - 1;
        println!(r#"{{"seconds": {seconds}, "rows": {rows}, "inserts": {inserts}, "reads": {reads}}}"#);
    }

    /// Writes until `end`, and returns what each write took that ended after `start`.
    async fn write_until(&self, start: Instant, end: Instant) -> Vec<Duration> {
        let mut times = Vec::new();
        loop {
            let begun = Instant::now();
            self.insert().await;
            let now = Instant::now();
            if now > end {
                return times;
            }
            if now >= start {
                times.push(now - begun);
            }
        }
    }

    /// Reads random rows until `end`, and returns what each read took that began after `start`.
    async fn read_until(&self, start: Instant, end: Instant, mut random: u64) -> Vec<Duration> {
        let mut times = Vec::new();
        while Instant::now() < end {
            // A linear congruential generator.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let id = 1 + (random >> 33).cast_signed() % self.last.load(Ordering::Relaxed);
            let begun = Instant::now();
            assert_eq!(self.store.get(id).await.len(), 40);
            if begun >= start {
                times.push(begun.elapsed());
            }
            tokio::time::sleep(PAUSE).await;
        }
        times
    }
}

/// Returns the number of `times`, and their 99th percentile, as JSON.
fn figures(times: Vec<Vec<Duration>>) -> String {
    let mut times = times.concat();
    times.sort_unstable();
    let p99 = times.get(times.len() * 99 / 100).map_or(0.0, Duration::as_secs_f64) * 1e3;
    format!(r#"{{"number": {}, "p99_ms": {p99:.3}}}"#, times.len())
}
