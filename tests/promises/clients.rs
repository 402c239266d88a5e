//! Load, and what came of it. Clients run on one thread of their own, each on a connection that it keeps.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// Longer than any client waits: an answer after it is none.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a client sends, by its number and that of the request.
pub type Request = fn(&Load, usize, u64) -> String;

/// What to send, and how.
#[derive(Clone)]
pub struct Load {
    pub address: String,
    pub clients: usize,
    pub request: Request,
    pub key: String,
    pub time: Duration,
    /// Requests in a second over all clients, due at fixed moments. Without it, each client sends its next request when
    /// it has the answer to the last.
    pub rate: Option<f64>,
    /// Whether a client that is refused waits for as long as `Retry-After` says; what is due meanwhile is missed.
    pub obeys: bool,
}

/// What came of a load.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How long each answer with 2xx took.
    pub accepted: Vec<Duration>,
    /// How long each 503 took.
    pub refused: Vec<Duration>,
    /// Requests that were due while their client still waited for an answer.
    pub missed: u64,
    /// Other statuses, resets, silence: what each was, up to a few.
    pub failed: Vec<String>,
    pub took: Duration,
}

impl Outcome {
    /// Accepted in a second.
    pub fn goodput(&self) -> f64 {
        self.accepted.len() as f64 / self.took.as_secs_f64()
    }

    /// Whether no more than one in a hundred of the requests that were due had to be left out.
    pub fn kept_up(&self) -> bool {
        self.missed <= self.due() / 100
    }

    /// Requests that were due in a second.
    pub fn offered(&self) -> f64 {
        self.due() as f64 / self.took.as_secs_f64()
    }

    fn due(&self) -> u64 {
        (self.accepted.len() + self.refused.len() + self.failed.len()) as u64 + self.missed
    }
}

/// The time that so many of a hundred do not exceed.
pub fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    sorted.get((sorted.len() * percent / 100).min(last)).copied().unwrap_or_default()
}

/// When an answer says to come back.
pub fn retry_after(answer: &[u8]) -> Duration {
    let answer = String::from_utf8_lossy(answer);
    let seconds = answer.lines().find_map(|line| line.strip_prefix("retry-after: "));
    Duration::from_secs(seconds.expect("a 503 says when to come back").parse().unwrap())
}

/// Sends a request, and reads the answer whole into `buffer`; its head.
pub async fn exchange(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> std::io::Result<String> {
    stream.write_all(request).await?;
    buffer.clear();
    let (head, length) = loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err(std::io::Error::other("closed before an answer"));
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
            return Err(std::io::Error::other("closed within an answer"));
        }
    }
    Ok(head)
}

impl Load {
    /// Lists of a hundred animals, from anywhere among the first thousand.
    pub fn lists(load: &Load, client: usize, n: u64) -> String {
        let after = (client as u64 * 7919 + n * 104_729) % 1_000;
        format!(
            "GET /v1/pets?limit=100&after={after} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
            load.key
        )
    }

    /// Every fifth request adds an animal, the others list them: the mix is the same whoever is answered sooner.
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

    /// The highest rate, in steps of a twentieth down from `start`, that these clients can keep up when each request is
    /// due at a fixed moment. That is less than they get who wait for each other's answers: these come in crowds, and
    /// share more of the work.
    pub fn most_kept_up(&self, start: f64) -> f64 {
        let rates = (0..20).map(|step| start * (1.0 - 0.05 * f64::from(step)));
        let mut held = rates.filter(|rate| {
            let outcome = Self { rate: Some(*rate), ..self.clone() }.run();
            println!("{rate:.0} a second: {} asked, {} not", outcome.accepted.len(), outcome.missed);
            outcome.kept_up()
        });
        let most = held.next().expect("a rate that is held");
        // The control: clients that ask for more do fall behind.
        assert!(most < start, "more than {start:.0} a second can be kept up");
        most
    }

    /// Runs it in the background.
    pub fn start(&self) -> std::thread::JoinHandle<Outcome> {
        let load = self.clone();
        std::thread::spawn(move || load.run())
    }

    pub fn run(&self) -> Outcome {
        let outcome = Rc::new(RefCell::new(Outcome::default()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clients = LocalSet::new();
        // All are there before the first request is due.
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
            let answer = tokio::time::timeout(PATIENCE, self.ask(&mut stream, request.as_bytes(), &mut buffer)).await;
            let took = sent.elapsed();
            {
                let mut outcome = outcome.borrow_mut();
                match &answer {
                    // What was asked in time counts, and only if it is answered in time.
                    Ok(Ok(200..300)) if sent + took <= end => outcome.accepted.push(took),
                    Ok(Ok(200..300)) => {}
                    Ok(Ok(503)) => outcome.refused.push(took),
                    Ok(Ok(status)) => outcome.failed.push(format!("status {status}")),
                    Ok(Err(error)) => outcome.failed.push(error.to_string()),
                    Err(_) => {
                        outcome.failed.push("no answer".into());
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

    /// The status of the answer, which is read whole.
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
