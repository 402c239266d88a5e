//! Promise 19: slow clients are disconnected in time and do not slow others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bounded_http::Limits;
use futures_util::future::join_all;
use testkit::trial::{self, is_full, rounds};
use testkit::{Connection, Database, Request, Shop, TIMEOUT, new_pet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use verification::Load;
use verification::load::percentile;

/// The behaviour of a slow client.
#[derive(Clone, Copy, Debug)]
enum Behaviour {
    Silent,
    SlowHead,
    SlowBody,
    /// Sends requests and does not read the responses.
    NotReading,
}

const BEHAVIOURS: [Behaviour; 4] = [Behaviour::Silent, Behaviour::SlowHead, Behaviour::SlowBody, Behaviour::NotReading];

impl Behaviour {
    /// The limit of the service that disconnects the client.
    fn limit(self) -> Duration {
        let limits = Limits::default();
        match self {
            Self::Silent => limits.idle,
            Self::SlowHead => limits.head,
            Self::SlowBody => limits.request,
            Self::NotReading => limits.answer,
        }
    }
}

/// Maximum bytes of responses in the kernel per connection: the service's limit, and the packets in flight.
const MOST_UNSENT: u64 = 128 * 1024 + 128 * 1024;

/// Buffers do not keep the size of the largest response of a connection.
#[test]
fn connection_after_the_largest_file_uses_little_memory() {
    const CLIENTS: u64 = 300;
    let database = Database::temporary();
    let service = database.serve();
    let mut connections = Vec::new();
    let mut fetch = || {
        let mut connection = Connection::open(service.store()).unwrap();
        let response = connection.send(&Request::new(service.store(), "GET", "/docs/scalar.js")).unwrap();
        connections.push(connection);
        response.header("content-length").unwrap().parse::<u64>().unwrap()
    };
    // The first request fills caches.
    fetch();
    let before = service.memory();
    let received: u64 = (0..CLIENTS).map(|_| fetch()).sum();
    // Control: the file is much larger than the bound below.
    assert!(received > CLIENTS * 4_000_000, "the file is no longer large");
    let each = service.memory().saturating_sub(before) / CLIENTS;
    assert!(each < 160_000, "{each} bytes for each connection");
}

/// Uses the default limits. A full run takes a minute and a half.
#[test]
fn five_thousand_slow_clients_do_not_slow_others() {
    let sockets = rounds(400) as usize;
    let Shop { database, key } = Shop::on_sqlite();
    let service = database.serve();
    create_long_names(service.store(), &key);
    let time = Duration::from_secs(if is_full() { 30 } else { 2 });
    let rate = Some(if is_full() { 500.0 } else { 50.0 });
    let others = Load { rate, ..Load::new(service.store(), &key, 8, time) };
    let alone = others.run();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let slow = runtime.spawn(slow(service.store(), key, sockets));
    // Until the buffers of the kernel are full.
    std::thread::sleep(Duration::from_secs(if is_full() { 4 } else { 1 }));
    let (memory, cpu) = (service.memory() >> 20, service.cpu());
    let unsent = unsent_bytes(service.store().port());
    let most = unsent.iter().max().copied().unwrap_or(0);
    let beside = others.run();
    assert!(most <= MOST_UNSENT && (most >= 50_000 || !is_full()), "{most} bytes of unread responses");
    assert_eq!((alone.failed.len(), beside.failed.len(), beside.refused.len()), (0, 0, 0), "{:?}", beside.failed);
    let (before, after) = (percentile(&alone.accepted, 99), percentile(&beside.accepted, 99));
    if is_full() {
        let slowest = runtime.block_on(slow).unwrap();
        assert!(after <= before * 2, "p99 {before:?} became {after:?}");
        // Missed requests are in no percentile.
        assert!(alone.kept_up() && beside.kept_up(), "{} and {} missed", alone.missed, beside.missed);
        trial::measured(&format!(
            "{sockets} slow sockets, {memory} MiB and {} MiB of responses in the kernel, {:?} of CPU; all closed, at \
             most {slowest:?} after their limit; others' p99 {before:?} without and {after:?} with them",
            unsent.iter().sum::<u64>() >> 20,
            service.cpu() - cpu
        ));
    } else if slow.is_finished() {
        // One was closed too soon.
        runtime.block_on(slow).unwrap();
    }
}

/// Opens sockets of each behaviour and waits until the service has closed them all. Returns the longest time by which one
/// of them exceeded its limit.
async fn slow(address: SocketAddr, key: String, sockets: usize) -> Duration {
    let clients = (0..sockets).map(|n| behave(address, &key, BEHAVIOURS[n % BEHAVIOURS.len()]));
    join_all(clients).await.into_iter().max().unwrap_or_default()
}

async fn behave(address: SocketAddr, key: &str, behaviour: Behaviour) -> Duration {
    let limit = behaviour.limit();
    // The service checks a connection after its shortest limit, and notices a client that does not read when the buffers
    // are full.
    let slack = if is_full() { Duration::from_secs(5) } else { TIMEOUT };
    let pace = (limit / 10).min(Duration::from_secs(1));
    let since = Instant::now();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let head = format!("host: x\r\nauthorization: Bearer {key}\r\n");
    let start = match behaviour {
        Behaviour::Silent => String::new(),
        Behaviour::SlowHead => format!("GET /v1/pets HTTP/1.1\r\n{head}x: "),
        Behaviour::SlowBody => {
            format!("POST /v1/pets HTTP/1.1\r\n{head}content-type: application/json\r\ncontent-length: 60000\r\n\r\n")
        }
        Behaviour::NotReading => format!("GET /v1/pets?limit=100 HTTP/1.1\r\n{head}\r\n").repeat(400),
    };
    let _ = timeout(Duration::from_secs(5), stream.write_all(start.as_bytes())).await;
    loop {
        let lived = since.elapsed();
        assert!(lived < limit + slack, "{behaviour:?} is still open after {lived:?}");
        let closed = match behaviour {
            Behaviour::NotReading => is_closed_for_writing(&mut stream, pace).await,
            _ => {
                // Single bytes do not extend a limit.
                if !matches!(behaviour, Behaviour::Silent) {
                    let _ = timeout(Duration::from_millis(10), stream.write_all(b"x")).await;
                }
                let read = timeout(pace, stream.read(&mut [0; 1024])).await;
                matches!(read, Ok(Ok(0) | Err(_)))
            }
        };
        if closed {
            let lived = since.elapsed();
            assert!(lived >= limit.mul_f64(0.9), "{behaviour:?} was closed after {lived:?}");
            return lived.saturating_sub(limit);
        }
    }
}

/// Returns whether the service has closed the connection, without reading its responses.
async fn is_closed_for_writing(stream: &mut TcpStream, pace: Duration) -> bool {
    tokio::time::sleep(pace).await;
    stream.take_error().unwrap().is_some()
        || matches!(timeout(Duration::from_millis(10), stream.write(b"\r\n")).await, Ok(Err(_)))
}

/// The bytes in the kernel's send queue of each connection of a server (proc_tid_net(5), `/proc/net/tcp`).
fn unsent_bytes(port: u16) -> Vec<u64> {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let queue = |socket: &str| {
        let mut columns = socket.split_whitespace().skip(1);
        let local = columns.next()?.rsplit_once(':')?.1;
        let sending = columns.nth(2)?.split_once(':')?.0;
        (u16::from_str_radix(local, 16) == Ok(port)).then(|| u64::from_str_radix(sending, 16).unwrap())
    };
    sockets.lines().filter_map(queue).collect()
}

/// Creates animals with the longest names, so that responses are long.
fn create_long_names(address: SocketAddr, key: &str) {
    let mut connection = Connection::open(address).unwrap();
    let request = Request::new(address, "POST", "/v1/pets").key(key).json(new_pet(&"\u{1f98a}".repeat(255)));
    for _ in 0..100 {
        assert_eq!(connection.send(&request).unwrap().status(), 201);
    }
}
