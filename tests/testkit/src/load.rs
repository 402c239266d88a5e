//! A load generator. All clients run on one thread, each with its own keep-alive connection.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::wait::TIMEOUT;

/// Builds a request from the number of the client and of the request.
pub type Request = fn(&Load, usize, u64) -> String;

/// The load to generate.
#[derive(Clone)]
pub struct Load {
    pub address: String,
    pub clients: usize,
    pub request: Request,
    pub key: String,
    pub time: Duration,
    /// Requests per second over all clients, due at fixed times (open loop). If `None`, each client sends its next request
    /// after the response to the last one (closed loop).
    pub rate: Option<f64>,
    /// Whether a client that gets a 503 waits as long as `Retry-After` says. Requests due in that time are missed.
    pub obeys: bool,
}

/// The result of a load.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The latency of each 2xx.
    pub accepted: Vec<Duration>,
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

    /// Whether at most 1 % of the requests that were due were missed.
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

/// The `Retry-After` of a response.
pub fn retry_after(answer: &[u8]) -> Duration {
    let answer = String::from_utf8_lossy(answer);
    let seconds = answer.lines().find_map(|line| line.strip_prefix("retry-after: "));
    Duration::from_secs(seconds.expect("a 503 has Retry-After").parse().unwrap())
}

/// Sends a request and reads the whole response into `buffer`. Returns the head.
pub async fn exchange(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> std::io::Result<String> {
    stream.write_all(request).await?;
    buffer.clear();
    let (head, length) = loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err(std::io::Error::other("closed before the response"));
        }
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            break (head, end + 4 + length);
        }
    };
    while buffer.len() < length {
        if stream.read_buf(buffer).await? == 0 {
            return Err(std::io::Error::other("closed within the response"));
        }
    }
    Ok(head)
}

impl Load {
    /// Lists a hundred animals, starting anywhere among the first thousand.
    pub fn lists(load: &Load, client: usize, n: u64) -> String {
        let after = (client as u64 * 7919 + n * 104_729) % 1_000;
        format!(
            "GET /v1/pets?limit=100&after={after} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
            load.key
        )
    }

    /// Every fifth request creates an animal, the others list animals. The mix does not depend on response times.
    pub fn lists_and_creates(load: &Load, client: usize, n: u64) -> String {
        if (client as u64 + n).is_multiple_of(5) {
            Self::creates(load, client, n)
        } else {
            Self::lists(load, client, n)
        }
    }

    pub fn creates(load: &Load, client: usize, n: u64) -> String {
        let body = format!(r#"{{"name":"{client}-{n}","categoryId":1}}"#);
        format!(
            "POST /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            load.key,
            body.len()
        )
    }

    /// The highest open-loop rate that these clients keep up, in steps of a twentieth down from `start`. It is lower than
    /// the closed-loop rate, because closed-loop requests arrive in bursts and share more of the work.
    pub fn most_kept_up(&self, start: f64) -> f64 {
        let rates = (0..20).map(|step| start * (1.0 - 0.05 * f64::from(step)));
        let mut held = rates.filter(|rate| {
            let outcome = Self { rate: Some(*rate), ..self.clone() }.run();
            println!("{rate:.0} a second: {} asked, {} not", outcome.accepted.len(), outcome.missed);
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
        let mut stream = TcpStream::connect(&self.address).await.ok();
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
            if sent >= end {
                return;
            }
            let request = (self.request)(self, client, n);
            let answer = tokio::time::timeout(TIMEOUT, self.ask(&mut stream, request.as_bytes(), &mut buffer)).await;
            let took = sent.elapsed();
            {
                let mut outcome = outcome.borrow_mut();
                match &answer {
                    // Only responses within the time count.
                    Ok(Ok(200..300)) if sent + took <= end => outcome.accepted.push(took),
                    Ok(Ok(200..300)) => {}
                    Ok(Ok(503)) => outcome.refused.push(took),
                    Ok(Ok(status)) => outcome.failed.push(format!("status {status}")),
                    Ok(Err(error)) => outcome.failed.push(error.to_string()),
                    Err(_) => {
                        outcome.failed.push("no response".into());
                        stream = None;
                    }
                }
            }
            if self.obeys && matches!(answer, Ok(Ok(503))) {
                tokio::time::sleep(retry_after(&buffer)).await;
            }
            n += 1;
        }
    }

    /// The status of the response, which is read whole.
    async fn ask(&self, stream: &mut Option<TcpStream>, request: &[u8], buffer: &mut Vec<u8>) -> std::io::Result<u16> {
        let mut open = match stream.take() {
            Some(open) => open,
            None => TcpStream::connect(&self.address).await?,
        };
        let head = exchange(&mut open, request, buffer).await?;
        if !head.contains("\r\nconnection: close") {
            *stream = Some(open);
        }
        Ok(head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0))
    }
}
