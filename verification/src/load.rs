//! A load generator that measures latencies. All clients run on one thread, each with its own keep-alive connection.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use testkit::{Request, TIMEOUT, is_complete, new_pet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// Builds a request from the number of the client and of the request.
pub type NewRequest = fn(&Load, usize, u64) -> Request;

/// The load to generate.
#[derive(Clone)]
pub struct Load {
    pub address: SocketAddr,
    pub clients: usize,
    pub request: NewRequest,
    pub key: String,
    pub time: Duration,
    /// Requests per second over all clients, due at fixed times (open loop). If `None`, each client sends its next request
    /// after the response to the last one (closed loop).
    pub rate: Option<f64>,
    /// Lets a client that gets a 503 wait as long as `Retry-After` says. Requests due in that time are missed.
    pub obeys: bool,
}

/// The result of a load.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The latency of each 2xx.
    pub accepted: Vec<Duration>,
    /// Number of 2xx after the time of the load.
    pub late: u64,
    /// The latency of each 503.
    pub refused: Vec<Duration>,
    /// Requests that were due while their client waited for another response.
    pub missed: u64,
    /// Other statuses, resets and timeouts, each described.
    pub failed: Vec<String>,
    pub took: Duration,
}

impl Outcome {
    /// Accepted requests per second.
    pub fn goodput(&self) -> f64 {
        self.accepted.len() as f64 / self.took.as_secs_f64()
    }

    /// Returns whether at most 1 % of the requests that were due were missed.
    pub fn kept_up(&self) -> bool {
        self.missed <= self.due() / 100
    }

    /// Requests due per second.
    pub fn offered(&self) -> f64 {
        self.due() as f64 / self.took.as_secs_f64()
    }

    fn due(&self) -> u64 {
        (self.accepted.len() + self.refused.len() + self.failed.len()) as u64 + self.missed
    }
}

/// The given percentile of `times`.
pub fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    sorted.get((sorted.len() * percent / 100).min(last)).copied().unwrap_or_default()
}

/// Sends a request and reads the whole response into `buffer`. Returns the head.
async fn exchange(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> io::Result<String> {
    stream.write_all(request).await?;
    buffer.clear();
    while !is_complete(buffer) {
        if stream.read_buf(buffer).await? == 0 {
            let what = if buffer.is_empty() { "a" } else { "the end of the" };
            return Err(io::Error::other(format!("closed before {what} response")));
        }
    }
    let end = buffer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    Ok(String::from_utf8_lossy(&buffer[..end]).into_owned())
}

impl Load {
    /// A closed loop of `clients` that list animals for `time`, without heeding `Retry-After`.
    pub fn new(address: SocketAddr, key: &str, clients: usize, time: Duration) -> Self {
        Self { address, clients, request: Self::lists, key: key.to_owned(), time, rate: None, obeys: false }
    }

    /// Lists a hundred animals, starting anywhere among the first thousand.
    pub fn lists(&self, client: usize, n: u64) -> Request {
        let after = (client as u64 * 7919 + n * 104_729) % 1_000;
        Request::new(self.address, "GET", &format!("/v1/pets?limit=100&after={after}")).key(&self.key)
    }

    /// Every fifth request creates an animal, the others list animals. The mix does not depend on response times.
    pub fn lists_and_creates(&self, client: usize, n: u64) -> Request {
        if (client as u64 + n).is_multiple_of(5) { self.creates(client, n) } else { self.lists(client, n) }
    }

    pub fn creates(&self, client: usize, n: u64) -> Request {
        Request::new(self.address, "POST", "/v1/pets").key(&self.key).json(new_pet(&format!("{client}-{n}")))
    }

    /// The highest open-loop rate that these clients keep up, in steps of a twentieth down from `start`. It is lower than
    /// the closed-loop rate, because closed-loop requests arrive in bursts and share more of the work.
    pub fn most_kept_up(&self, start: f64) -> f64 {
        let rates = (0..20).map(|step| start * (1.0 - 0.05 * f64::from(step)));
        let mut held = rates.filter(|rate| {
            let outcome = Self { rate: Some(*rate), ..self.clone() }.run();
            println!("{rate:.0} a second: {} accepted, {} missed", outcome.accepted.len(), outcome.missed);
            outcome.kept_up()
        });
        let most = held.next().expect("some rate is kept up");
        // The control: at a higher rate the clients fall behind.
        assert!(most < start, "more than {start:.0} a second can be kept up");
        most
    }

    /// Runs the load in the background.
    pub fn start(&self) -> std::thread::JoinHandle<Outcome> {
        let load = self.clone();
        std::thread::spawn(move || load.run())
    }

    pub fn run(&self) -> Outcome {
        let outcome = Rc::new(RefCell::new(Outcome::default()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clients = LocalSet::new();
        // All clients connect before the first request is due.
        let begin = Instant::now() + Duration::from_millis(50) + Duration::from_micros(200) * self.clients as u32;
        for client in 0..self.clients {
            let (load, outcome) = (self.clone(), Rc::clone(&outcome));
            clients.spawn_local(async move { load.client(client, begin, &outcome).await });
        }
        runtime.block_on(clients);
        let mut outcome = outcome.take();
        outcome.took = self.time;
        outcome
    }

    async fn client(&self, client: usize, begin: Instant, outcome: &RefCell<Outcome>) {
        let end = begin + self.time;
        let mut stream = TcpStream::connect(self.address).await.ok();
        let mut buffer = Vec::with_capacity(16 * 1024);
        let mut n = 0_u64;
        tokio::time::sleep_until(begin.into()).await;
        loop {
            if let Some(rate) = self.rate {
                let due =
                    |n: u64| begin + Duration::from_secs_f64((client as f64 + n as f64 * self.clients as f64) / rate);
                while due(n + 1) < Instant::now() && due(n + 1) < end {
                    n += 1;
                    outcome.borrow_mut().missed += 1;
                }
                if due(n) >= end {
                    return;
                }
                tokio::time::sleep_until(due(n).into()).await;
            }
            let sent = Instant::now();
            // A request that was due is sent, even if the machine paused until the end.
            if sent >= end && self.rate.is_none() {
                return;
            }
            let request = (self.request)(self, client, n).bytes();
            let head = tokio::time::timeout(TIMEOUT, self.exchange(&mut stream, &request, &mut buffer)).await;
            let took = sent.elapsed();
            let head = head.unwrap_or_else(|_| Err(io::Error::other("no response")));
            let status = head.as_ref().map(|head| head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0));
            match status {
                Ok(200..300) if sent + took <= end => outcome.borrow_mut().accepted.push(took),
                Ok(200..300) => outcome.borrow_mut().late += 1,
                Ok(503) => {
                    outcome.borrow_mut().refused.push(took);
                    if self.obeys {
                        tokio::time::sleep(retry_after(&head.unwrap())).await;
                    }
                }
                Ok(status) => outcome.borrow_mut().failed.push(format!("status {status}")),
                Err(error) => outcome.borrow_mut().failed.push(error.to_string()),
            }
            n += 1;
        }
    }

    /// Returns the head of the response. The connection is kept only if it may carry another request.
    async fn exchange(
        &self,
        stream: &mut Option<TcpStream>,
        request: &[u8],
        buffer: &mut Vec<u8>,
    ) -> io::Result<String> {
        let mut open = match stream.take() {
            Some(open) => open,
            None => TcpStream::connect(self.address).await?,
        };
        let head = exchange(&mut open, request, buffer).await?;
        if !head.contains("\r\nconnection: close") {
            *stream = Some(open);
        }
        Ok(head)
    }
}

/// The `Retry-After` in the head of a 503.
fn retry_after(head: &str) -> Duration {
    let seconds = head.lines().find_map(|line| line.strip_prefix("retry-after: "));
    Duration::from_secs(seconds.expect("a 503 has Retry-After").parse().unwrap())
}
