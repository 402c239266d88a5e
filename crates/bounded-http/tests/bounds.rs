//! Every bound, over real sockets: what the client sees, and that others are still served.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bounded_http::{BodyTimeout, BodyTooLarge, Connections, Expired, Limits, Server, Stop, TimedBody, service_fn};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep, timeout};

const HELLO: &str = "GET /hello HTTP/1.1\r\nhost: x\r\n\r\n";

/// A deadline that a client meets with a request, even on a busy machine.
const LONG: Duration = Duration::from_secs(3);

/// A deadline that a client exceeds.
const SHORT: Duration = Duration::from_millis(300);

struct Running {
    address: SocketAddr,
    connections: Arc<Connections>,
    stop: watch::Sender<Stop>,
    server: JoinHandle<()>,
}

impl Running {
    async fn with(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = service_fn(answer);
        let (connections, (stop, stopped)) = (service.connections(), watch::channel(Stop::No));
        let server = tokio::spawn(Server { limits, ..Server::new(listener, service) }.run(stopped));
        Self { address, connections, stop, server }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes, and returns all that comes until the connection is closed.
    async fn exchange(&self, bytes: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        rest(&mut stream).await
    }

    async fn assert_serves(&self) {
        let answer = self.exchange("GET /hello HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    }
}

type Sent = Either<Full<Bytes>, Slow>;

/// Two bytes, with a pause before each.
#[derive(Default)]
struct Slow {
    sent: usize,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Body for Slow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.sent == 2 {
            return Poll::Ready(None);
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(2 * SHORT)));
        ready!(pause.as_mut().poll(cx));
        (self.pause, self.sent) = (None, self.sent + 1);
        Poll::Ready(Some(Ok(Frame::data("x".into()))))
    }
}

/// `/big` has 1 MB, `/wait` never ends. Others get their body back, or `hello`.
async fn answer(request: Request<TimedBody>, _: SocketAddr) -> Response<Sent> {
    if request.uri().path() == "/slow" {
        return Response::new(Either::Right(Slow::default()));
    }
    at_once(request).await.map(Either::Left)
}

async fn at_once(request: Request<TimedBody>) -> Response<Full<Bytes>> {
    match request.uri().path() {
        "/big" => return Response::new(vec![b'x'; 1_000_000].into()),
        "/wait" => std::future::pending().await,
        _ => {}
    }
    match request.into_body().collect().await {
        Ok(body) => match body.to_bytes() {
            empty if empty.is_empty() => Response::new("hello".into()),
            body => Response::new(body.into()),
        },
        Err(error) => {
            let status = if error.is::<BodyTooLarge>() { 413 } else { 408 };
            assert!(status == 413 || error.is::<BodyTimeout>(), "{error}");
            Response::builder().status(status).body(error.to_string().into()).unwrap()
        }
    }
}

/// Reads until the connection is closed or reset.
async fn rest(stream: &mut TcpStream) -> String {
    let (mut all, mut buffer) = (Vec::new(), [0; 4_096]);
    let read = async {
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            all.extend_from_slice(&buffer[..read]);
        }
    };
    timeout(Duration::from_mins(1), read).await.expect("the connection is closed");
    String::from_utf8(all).unwrap()
}

/// Waits for what must happen within a minute.
async fn until(happened: impl Fn() -> bool) {
    let wait = async {
        while !happened() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_mins(1), wait).await.expect("it happens within a minute");
}

#[tokio::test]
async fn silent_client_is_disconnected() {
    let running = Running::with(Limits { idle: LONG, ..Limits::default() }).await;
    assert_eq!(running.exchange("").await, "");
    assert!(running.exchange(HELLO).await.ends_with("hello"), "no second request came");
    assert_eq!(running.connections.expired(Expired::Idle), 2);
}

#[tokio::test]
async fn late_head_gets_408() {
    let running = Running::with(Limits { head: SHORT, ..Limits::default() }).await;
    for begun in ["G", "GET /hello HTT", "GET /hello HTTP/1.1\r\nhost: x\r\n"] {
        let answer = running.exchange(begun).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    assert_eq!(running.connections.expired(Expired::Head), 3);
}

#[tokio::test]
async fn late_body_is_an_error_of_the_service() {
    let running = Running::with(Limits { request: SHORT, ..Limits::default() }).await;
    for begun in ["content-length: 9\r\n\r\nhel", "transfer-encoding: chunked\r\n\r\n3\r\nhel\r\n"] {
        let answer = running.exchange(&format!("POST / HTTP/1.1\r\nhost: x\r\n{begun}")).await;
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("connection: close"), "{answer}");
    }
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let running = Running::with(Limits { answer: SHORT, ..Limits::default() }).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(running.address).await.unwrap();
    for _ in 0..10 {
        stream.write_all(HELLO.replace("hello", "big").as_bytes()).await.unwrap();
    }
    until(|| running.connections.expired(Expired::Answer) == 1).await;
    running.assert_serves().await;
}

#[tokio::test]
async fn slow_response_is_not_cut_off() {
    let running = Running::with(Limits { idle: SHORT, head: SHORT, answer: SHORT, ..Limits::default() }).await;
    let answer = running.exchange(&HELLO.replace("hello", "slow")).await;
    assert!(answer.ends_with("\r\n\r\n1\r\nx\r\n1\r\nx\r\n0\r\n\r\n"), "{answer}");
    let answer = running.exchange(&format!("{}{HELLO}", HELLO.replace("hello", "slow"))).await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn endless_body_is_cut_off() {
    let running = Running::with(Limits { body: 200_000, ..Limits::default() }).await;
    let body = "x".repeat(150_000);
    let post =
        |length| format!("POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    assert!(running.exchange(&post(150_000)).await.ends_with(&body));
    let answer = running.exchange(&format!("{}{body}", post(300_000))).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn connections_above_the_limit_get_503() {
    let running = Running::with(Limits { connections: Some(1), ..Limits::default() }).await;
    let mut first = running.connect().await;
    until(|| running.connections.open() == 1).await;
    let answer = running.exchange(HELLO).await;
    assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n"), "{answer}");
    assert!(answer.contains("content-length: 27\r\n") && answer.ends_with("\r\n\r\nAll connections are taken.\n"));
    assert_eq!(running.connections.refused(), 1);

    first.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    assert!(rest(&mut first).await.ends_with("hello"));
    until(|| running.connections.open() == 0).await;
    running.assert_serves().await;
}

#[tokio::test]
async fn ambiguous_requests_get_400() {
    let running = Running::with(Limits::default()).await;
    for ambiguous in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        "GET /#x HTTP/1.1\r\nhost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "no HTTP\r\n\r\n",
    ] {
        let answer = running.exchange(&format!("{ambiguous}{HELLO}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && !answer.contains("hello"), "{answer}");
    }
    assert!(running.exchange("no HTTP\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    assert_eq!(running.connections.malformed(), 2);
}

#[tokio::test]
async fn drain_answers_open_requests_and_closes_idle_connections() {
    let running = Running::with(Limits::default()).await;
    let (mut open, mut idle) = (running.connect().await, running.connect().await);
    open.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nhe").await.unwrap();
    until(|| running.connections.open() == 2).await;
    running.stop.send_replace(Stop::Drain);
    assert_eq!(rest(&mut idle).await, "");
    assert!(!running.server.is_finished());
    open.write_all(b"re").await.unwrap();
    assert!(rest(&mut open).await.ends_with("\r\n\r\nhere"));
    timeout(Duration::from_mins(1), running.server).await.expect("the server ends").unwrap();
}

#[tokio::test]
async fn drain_does_not_wait_for_a_blocked_runtime_without_connections() {
    let blocked = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (unblock, wait) = mpsc::channel::<()>();
    let (blocks, is_blocked) = oneshot::channel();
    blocked.spawn(async move {
        blocks.send(()).unwrap();
        wait.recv().unwrap_err();
    });
    is_blocked.await.unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let registered = blocked.enter();
    let listener = TcpListener::from_std(listener).unwrap();
    drop(registered);
    let limits = Limits { drain: Duration::from_hours(1), ..Limits::default() };
    let server = Server { limits, public: blocked.handle().clone(), ..Server::new(listener, service_fn(answer)) };
    let (stop, stopped) = watch::channel(Stop::No);
    stop.send_replace(Stop::Drain);
    timeout(Duration::from_mins(1), server.run(stopped)).await.expect("the server ends");
    drop(unblock);
    blocked.shutdown_background();
}

#[tokio::test]
async fn stop_now_does_not_wait() {
    let running = Running::with(Limits::default()).await;
    let mut open = running.connect().await;
    open.write_all(HELLO.replace("hello", "wait").as_bytes()).await.unwrap();
    until(|| running.connections.open() == 1).await;
    running.stop.send_replace(Stop::Now);
    timeout(Duration::from_mins(1), running.server).await.expect("the server ends").unwrap();
    assert_eq!(rest(&mut open).await, "");
}
