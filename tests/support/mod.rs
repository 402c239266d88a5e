//! What the tests share: a service on free ports with its own folder, and a client that hides nothing.

#![allow(dead_code, reason = "each test binary uses a part of it, some all of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use petstore::app::{App, Sockets};
use petstore::clock::Clock;
use petstore::config::{Addresses, Admission, BaseUrl, Listener, Network, RateLimit, Registration, Scheme};
use petstore::domain::api_key::{KeyName, NewKey};
use petstore::domain::{AccountId, ApiKey, Deployment, Email, KeyId, Timestamp};
use petstore::http::{Api, Operation};
use petstore::server::{Limits, Stop, Tls};
use petstore::store::Store;
use petstore::store::postgres::{self, DatabaseUrl, Postgres};
use petstore::store::sqlite::{Options, Sqlite};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// 2026-11-20T09:30:00.123Z, where the clock of a test service stands.
pub const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);

/// How a test service differs from the usual one.
pub struct Setup {
    pub limits: Limits,
    pub deployment: Deployment,
    pub base_url: Option<BaseUrl>,
    /// Treats the listeners as bound to every address of the machine.
    pub any_host: bool,
    pub cors_origins: Vec<String>,
    pub registration: Registration,
    pub trusted_proxies: Vec<Network>,
    pub rate_limit: Option<RateLimit>,
    pub queue: usize,
    pub busy_timeout: Duration,
    pub tls: Option<Tls>,
    /// A PostgreSQL database instead of the embedded one.
    pub postgres: Option<DatabaseUrl>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            limits: Limits { connections: 256, ..Limits::default() },
            deployment: Deployment::Staging,
            base_url: None,
            any_host: false,
            cors_origins: Vec::new(),
            registration: Registration::Open,
            trusted_proxies: Vec::new(),
            rate_limit: None,
            queue: 4_096,
            busy_timeout: Duration::from_secs(5),
            tls: None,
            postgres: None,
        }
    }
}

/// A whole service in this process: three doors on free ports, a database in a folder that goes away with it.
pub struct Service {
    pub store_address: SocketAddr,
    pub messages_address: SocketAddr,
    pub ops_address: SocketAddr,
    pub clock: Clock,
    pub store: Arc<Store>,
    pub api: Api,
    pub app: App,
    pub folder: tempfile::TempDir,
    /// A key of the account `ada@example.com`.
    pub key: String,
    pub account: AccountId,
    stop: watch::Sender<Stop>,
    running: Option<tokio::task::JoinHandle<()>>,
}

impl Service {
    pub async fn start() -> Self {
        Self::start_with(Setup::default()).await
    }

    pub async fn start_with(setup: Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            deployment: Some(setup.deployment),
            queue: setup.queue,
            busy_timeout: setup.busy_timeout,
            ..Options::new(folder.path())
        };
        let store = Arc::new(match setup.postgres {
            None => Store::Sqlite(Sqlite::open(&options).unwrap()),
            Some(url) => {
                let options = postgres::Options { deployment: Some(setup.deployment), ..postgres::Options::new(url) };
                Store::Postgres(Box::new(Postgres::open(&options).await.unwrap()))
            }
        });
        let clock = Clock::fixed(NOW);
        let (store_door, messages_door, ops_door) = (listener().await, listener().await, listener().await);
        let (store_address, messages_address, ops_address) =
            (store_door.local_addr().unwrap(), messages_door.local_addr().unwrap(), ops_door.local_addr().unwrap());
        let scheme = if setup.tls.is_some() { Scheme::Https } else { Scheme::Http };
        let told = |bound: SocketAddr| match setup.any_host {
            true => SocketAddr::from(([0, 0, 0, 0], bound.port())),
            false => bound,
        };
        let addresses = Addresses {
            base_url: setup.base_url.unwrap_or_else(|| BaseUrl::of_bound(scheme, told(store_address))),
            messages_base_url: BaseUrl::of_bound(scheme, told(messages_address)),
            staging_base_url: None,
            cors_origins: setup.cors_origins,
            scheme,
            store_bound: told(store_address),
        };
        let admission = Admission {
            registration: setup.registration,
            trusted_proxies: setup.trusted_proxies,
            rate_limit: setup.rate_limit,
        };
        let app = App::new(Arc::clone(&store), clock.clone(), addresses, admission);
        let sockets = Sockets { store: Some(store_door), messages: Some(messages_door), operations: Some(ops_door) };
        let (stop, stopped) = watch::channel(Stop::No);
        let running = tokio::spawn(app.clone().serve(sockets.serving(&app), setup.tls, setup.limits, stopped));
        let email = Email::parse("ada@example.com").unwrap();
        let account = store.create_account(email, None, NOW).await.unwrap().unwrap();
        let key = make_key(&store, account, None).await.1;
        Self {
            store_address,
            messages_address,
            ops_address,
            clock,
            store,
            api: app.api.clone(),
            app,
            folder,
            key,
            account,
            stop,
            running: Some(running),
        }
    }

    /// A request to the store door, without a key.
    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.store_address, method, path)
    }

    /// `GET` on the store door, with the service's key.
    pub async fn get(&self, path: &str) -> Answer {
        self.request("GET", path).key(&self.key).send().await
    }

    /// `POST` of JSON on the store door, with the service's key.
    pub async fn post(&self, path: &str, body: &str) -> Answer {
        self.request("POST", path).key(&self.key).json(body).send().await
    }

    /// `POST /v1/messages` on the messages door, with the service's key.
    pub async fn message(&self, body: &str) -> Answer {
        self.message_request().key(&self.key).json(body).send().await
    }

    /// A request for each operation of the API, and one more that places the order which is cancelled. With a key they
    /// get no 4xx but, without an animal, a 404, and a second time a 409.
    pub fn operations(&self) -> Vec<Request> {
        let example = |operation| match operation {
            Operation::ListPets | Operation::ListOrders => vec![self.request_to(operation, "")],
            Operation::CreatePet => vec![self.request_to(operation, "").json(r#"{"name":"Rex","categoryId":3}"#)],
            Operation::PlaceOrder => vec![self.request_to(operation, "").json(r#"{"petId":1}"#)],
            Operation::GetPet | Operation::ApproveOrder | Operation::DeliverOrder => {
                vec![self.request_to(operation, "1")]
            }
            // The first order is delivered by now.
            Operation::CancelOrder => {
                vec![self.request_to(Operation::PlaceOrder, "").json(r#"{"petId":2}"#), self.request_to(operation, "2")]
            }
            Operation::SendMessage => vec![self.request_to(operation, "").json(r#"{"message":"Hello"}"#)],
            other => panic!("{other:?} has no example"),
        };
        Operation::documented().flat_map(example).collect()
    }

    /// A request to an operation, without a key and a body. `id` replaces the parameter of its path.
    pub fn request_to(&self, operation: Operation, id: &str) -> Request {
        self.request_to_query(operation, id, "")
    }

    /// Like [`Self::request_to`], with `query`, which is empty or begins with a question mark.
    pub fn request_to_query(&self, operation: Operation, id: &str, query: &str) -> Request {
        let path = operation.path().replace("{petId}", id).replace("{orderId}", id) + query;
        Request::new(self.address_of(operation), operation.method().as_str(), &path)
    }

    /// The address of the listener that has the operation.
    pub fn address_of(&self, operation: Operation) -> SocketAddr {
        match operation.listener() {
            Some(Listener::Messages) => self.messages_address,
            Some(Listener::Ops) => self.ops_address,
            Some(Listener::Store) | None => self.store_address,
        }
    }

    /// `POST /v1/messages` on the messages door, without a key and a body.
    pub fn message_request(&self) -> Request {
        Request::new(self.messages_address, "POST", "/v1/messages")
    }

    /// A connection to the service's database that the service knows nothing of.
    pub fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.database_file()).unwrap()
    }

    pub fn database_file(&self) -> std::path::PathBuf {
        self.folder.path().join("petstore.db")
    }

    /// Another account with a key.
    pub async fn another_account(&self, email: &str) -> (AccountId, String) {
        let account = self.store.create_account(Email::parse(email).unwrap(), None, NOW).await.unwrap().unwrap();
        (account, make_key(&self.store, account, None).await.1)
    }

    /// Another key of the same account, and its id.
    pub async fn another_key(&self, expires_at: Option<Timestamp>) -> (KeyId, String) {
        make_key(&self.store, self.account, expires_at).await
    }

    /// Asks for a stop; `stopped` waits for its end.
    pub fn ask_to_stop(&self, stop: Stop) {
        self.stop.send_replace(stop);
    }

    pub async fn stopped(&mut self) {
        self.running.take().unwrap().await.unwrap();
        self.store.close().await;
    }
}

async fn make_key(store: &Store, account: AccountId, expires_at: Option<Timestamp>) -> (KeyId, String) {
    let key = ApiKey::generate(store.deployment());
    let name = KeyName::parse("test".into()).unwrap();
    let new = NewKey { account, name, hash: key.hash(), hint: key.hint(), created_at: NOW, expires_at };
    (store.create_key(new).await.unwrap(), key.expose().to_owned())
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// A request, exactly as it is built here: nothing is added but `Host` and `Content-Length`.
pub struct Request {
    address: SocketAddr,
    request: http_::request::Builder,
    body: Vec<u8>,
}

use ::http as http_;

impl Request {
    pub fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let request = http_::Request::builder().method(method).uri(path).header("host", address.to_string());
        Self { address, request, body: Vec::new() }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    pub fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// A body declared as JSON.
    pub fn json(self, body: impl Into<Vec<u8>>) -> Self {
        self.header("content-type", "application/json").body(body)
    }

    pub async fn send(self) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.send_over(stream).await
    }

    /// Sends it on a connection of its own that is there already.
    pub async fn send_over(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Answer {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = self.request.body(Full::new(Bytes::from(self.body))).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        drop(sender);
        let _ = connection.await;
        Answer { head, body: String::from_utf8(body.to_vec()).unwrap(), address: self.address }
    }
}

pub struct Answer {
    pub head: http_::response::Parts,
    pub body: String,
    address: SocketAddr,
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    /// What a list separated by commas holds, in order of the alphabet and in lower case.
    pub fn list(&self, name: &str) -> Vec<String> {
        let mut items: Vec<_> = self
            .header(name)
            .unwrap_or_default()
            .split(',')
            .map(|item| item.trim().to_ascii_lowercase())
            .filter(|item| !item.is_empty())
            .collect();
        items.sort();
        items
    }

    /// A header that is there at most once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.head.headers.get_all(name).iter();
        let value = values.next().map(|value| value.to_str().unwrap());
        assert!(values.next().is_none(), "{name} is there more than once");
        value
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The `code` of an error, after checking that its body has the one shape.
    pub fn code(&self) -> String {
        let body = self.json();
        let keys: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["code", "message", "status"], "{body}");
        assert_eq!(body["status"], self.status(), "{body}");
        assert!(!body["message"].as_str().unwrap().is_empty(), "{body}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        body["code"].as_str().unwrap().to_owned()
    }

    /// Status, headers and body, for a snapshot: what differs from run to run is left out or replaced.
    pub fn shown(&self) -> String {
        let varying = ["date", "x-request-id", "content-length"];
        let headers = self.head.headers.iter().filter(|(name, _)| !varying.contains(&name.as_str()));
        let lines = headers.map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
        let shown = format!("{}\n{}\n{}\n", self.head.status, lines.collect::<String>(), self.body);
        shown.replace(&self.address.to_string(), "HOST")
    }
}

/// Sends bytes as they are and reads until the server closes.
pub async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    read_to_end(&mut stream).await
}

pub async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// Reads one answer off a connection on which others may follow.
pub async fn read_answer(stream: &mut TcpStream) -> Answer {
    let address = stream.peer_addr().unwrap();
    read_answer_of(address, stream).await
}

/// The same, off a connection of any kind to `address`.
pub async fn read_answer_of(address: SocketAddr, stream: &mut (impl AsyncRead + Unpin)) -> Answer {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("an answer comes before the end"));
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let mut response = http_::Response::builder().status(status);
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        response = response.header(name, value);
    }
    let (head, ()) = response.body(()).unwrap().into_parts();
    let mut answer = Answer { head, body: String::new(), address };
    let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    answer.body = String::from_utf8(body).unwrap();
    answer
}

/// Waits for what must come, long enough for the slowest machine.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it comes soon")
}
