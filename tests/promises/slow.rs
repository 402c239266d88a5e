//! Promise 19: clients that are slow on purpose are let go in time, and the others do not feel them.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use petstore::server::Limits;
use testkit::load::{exchange, percentile};
use testkit::trial::{self, is_full, rounds};
use testkit::{Database, Load};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::service::{Service, Setup};

/// A way to be slow, and the limit that ends it.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Silent,
    SlowHead,
    SlowBody,
    /// Asks and asks, and reads nothing of what it is answered.
    NotReading,
}

const MANNERS: [Manner; 4] = [Manner::Silent, Manner::SlowHead, Manner::SlowBody, Manner::NotReading];

impl Manner {
    fn limit(self, limits: &Limits) -> Duration {
        match self {
            Self::Silent => limits.idle,
            Self::SlowHead => limits.head,
            Self::SlowBody => limits.request,
            Self::NotReading => limits.answer,
        }
    }
}

/// The limit of the service, the rest of the packet that went beyond it, and what is on its way.
const MOST_UNSENT: u64 = 128 * 1024 + 128 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_disconnected_in_time() {
    let mut setup = Setup::default();
    let short = Duration::from_secs(1);
    (setup.limits.head, setup.limits.request, setup.limits.idle, setup.limits.answer) = (short, short, short, short);
    let limits = setup.limits;
    let service = Service::start_with(setup).await;
    fill(&service.store_address.to_string(), &service.key).await;
    let slow = slow(service.store_address.to_string(), service.key.clone(), 100, limits);
    let slow = tokio::spawn(slow);
    let mut unsent = Vec::new();
    while !slow.is_finished() {
        assert_eq!(service.get("/v1/pets?limit=1").await.status(), 200, "others are served");
        unsent.extend(unsent_answers(service.store_address.port()));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Less than one answer would mean that nobody has asked without reading.
    let most = unsent.into_iter().max().unwrap_or(0);
    assert!((50_000..=MOST_UNSENT).contains(&most), "the system holds {most} bytes of answers nobody reads");
    // The control is in the bound from below: nobody was let go before the time.
    slow.await.unwrap();
}

/// What a connection was sent before does not stay in its buffers, however large the file was.
#[tokio::test]
async fn connection_after_the_largest_file_uses_little_memory() {
    const CLIENTS: u64 = 300;
    let folder = tempfile::tempdir().unwrap();
    let service = Database::folder(folder.path()).serve();
    let (mut clients, mut answer) = (Vec::new(), Vec::new());
    let mut fetch = async |path: &str| {
        let mut stream = TcpStream::connect(&service.store).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        exchange(&mut stream, request.as_bytes(), &mut answer).await.unwrap();
        clients.push(stream);
        answer.len() as u64
    };
    // Whatever is made once.
    fetch("/docs/swagger-ui-bundle.js").await;
    let before = service.memory();
    let mut sent = 0;
    for _ in 0..CLIENTS {
        sent += fetch("/docs/swagger-ui-bundle.js").await;
    }
    // The control: it would be that much.
    assert!(sent > CLIENTS * 400_000, "the file is no longer large");
    let each = service.memory().saturating_sub(before) / CLIENTS;
    assert!(each < 160_000, "{each} bytes for each connection");
}

/// With the limits as they are: a minute and a half. Only where the figures are asked for.
#[test]
fn five_thousand_slow_clients_do_not_slow_others() {
    let sockets = rounds(400) as usize;
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(folder.path());
    let key = database.make_key();
    let service = database.serve();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(fill(&service.store, &key));
    let others = Load {
        address: service.store.clone(),
        clients: 8,
        request: Load::lists,
        key: key.clone(),
        time: Duration::from_secs(if is_full() { 30 } else { 2 }),
        rate: Some(if is_full() { 500.0 } else { 50.0 }),
        obeys: false,
    };
    let alone = others.run();
    let limits = Limits::default();
    let slow = runtime.spawn(slow(service.store.clone(), key, sockets, limits));
    // Until as much was asked and answered as the system takes.
    std::thread::sleep(Duration::from_secs(if is_full() { 4 } else { 1 }));
    let (memory, cpu) = (service.memory() >> 20, service.cpu());
    let unsent = unsent_answers(service.store.rsplit_once(':').unwrap().1.parse().unwrap());
    let most = unsent.iter().max().copied().unwrap_or(0);
    let beside = others.run();
    assert!(most <= MOST_UNSENT && (most >= 50_000 || !is_full()), "{most} bytes of answers nobody reads");
    assert_eq!((alone.failed.len(), beside.failed.len(), beside.refused.len()), (0, 0, 0), "{:?}", beside.failed);
    let (before, after) = (percentile(&alone.accepted, 99), percentile(&beside.accepted, 99));
    if is_full() {
        let slowest = runtime.block_on(slow).unwrap();
        assert!(after <= before * 2, "p99 {before:?} became {after:?}");
        // What was not even asked, since the answer before was late, is in no percentile.
        assert!(alone.kept_up() && beside.kept_up(), "{} and {} not asked", alone.missed, beside.missed);
        trial::measured(&format!(
            "{sockets} slow sockets, {memory} MiB and {} MiB of answers with the system, {:?} of CPU; all closed, at \
             most {slowest:?} after their time; others' p99 {before:?} without and {after:?} with them",
            unsent.iter().sum::<u64>() >> 20,
            service.cpu() - cpu
        ));
    }
}

/// Opens so many sockets, by turns of each manner, and waits until the service has closed them all. Returns by how much
/// the latest of them outlived its limit.
async fn slow(address: String, key: String, sockets: usize, limits: Limits) -> Duration {
    let clients = (0..sockets).map(|n| one(&address, &key, MANNERS[n % MANNERS.len()], &limits));
    join_all(clients).await.into_iter().max().unwrap_or_default()
}

async fn one(address: &str, key: &str, manner: Manner, limits: &Limits) -> Duration {
    let limit = manner.limit(limits);
    // The server looks at a connection after its shortest limit, and a client that does not read is first seen when
    // the buffers on the way are full.
    let slack = Duration::from_secs(if is_full() { 5 } else { 20 });
    let pace = (limit / 10).min(Duration::from_secs(1));
    let since = Instant::now();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
    let head = format!("host: x\r\nauthorization: Bearer {key}\r\n");
    let begun = match manner {
        Manner::Silent => String::new(),
        Manner::SlowHead => format!("GET /v1/pets HTTP/1.1\r\n{head}x: "),
        Manner::SlowBody => {
            format!("POST /v1/pets HTTP/1.1\r\n{head}content-type: application/json\r\ncontent-length: 60000\r\n\r\n")
        }
        Manner::NotReading => format!("GET /v1/pets?limit=100 HTTP/1.1\r\n{head}\r\n").repeat(400),
    };
    let _ = timeout(Duration::from_secs(5), stream.write_all(begun.as_bytes())).await;
    loop {
        let lived = since.elapsed();
        assert!(lived < limit + slack, "{manner:?} is there after {lived:?}");
        let closed = match manner {
            Manner::NotReading => is_closed_for_writing(&mut stream, pace).await,
            _ => {
                // A byte now and then is no progress.
                if !matches!(manner, Manner::Silent) {
                    let _ = timeout(Duration::from_millis(10), stream.write_all(b"x")).await;
                }
                let mut answer = [0; 1024];
                let read = timeout(pace, stream.read(&mut answer)).await;
                matches!(read, Ok(Ok(0) | Err(_)))
            }
        };
        if closed {
            let lived = since.elapsed();
            assert!(lived >= limit.mul_f64(0.9), "{manner:?} was closed after {lived:?}");
            return lived.saturating_sub(limit);
        }
    }
}

/// Whether the other side has given the connection up, seen without reading what it has sent.
async fn is_closed_for_writing(stream: &mut TcpStream, pace: Duration) -> bool {
    tokio::time::sleep(pace).await;
    stream.take_error().unwrap().is_some()
        || matches!(timeout(Duration::from_millis(10), stream.write(b"\r\n")).await, Ok(Err(_)))
}

/// The bytes that the system holds of each connection of a server, since its client does not read
/// (proc_tid_net(5), `/proc/net/tcp`).
fn unsent_answers(port: u16) -> Vec<u64> {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let queue = |socket: &str| {
        let mut columns = socket.split_whitespace().skip(1);
        let local = columns.next()?.rsplit_once(':')?.1;
        let sending = columns.nth(2)?.split_once(':')?.0;
        (u16::from_str_radix(local, 16) == Ok(port)).then(|| u64::from_str_radix(sending, 16).unwrap())
    };
    sockets.lines().filter_map(queue).collect()
}

/// Animals with the longest names, so that answers are long.
async fn fill(address: &str, key: &str) {
    let body = format!(r#"{{"name":"{}","categoryId":1}}"#, "\u{1f98a}".repeat(255));
    let request = format!(
        "POST /v1/pets HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut answer = [0; 4096];
    for _ in 0..100 {
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(stream.read(&mut answer).await.unwrap() > 0 && answer.starts_with(b"HTTP/1.1 201"));
    }
}
