//! The service inside the test process. It is the only shared part that needs the library, so it is not in `testkit`.

#![allow(dead_code, reason = "each test binary uses a part of it, some all of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::uri::Scheme;
use bounded_http::{Limits, Stop, Tls};
use petstore::api::{Addresses, BaseUrl, Listener, Network, RateLimit};
use petstore::api::{Api, Operation, Permission};
use petstore::app::{App, Sockets};
use petstore::config::{Registration, ServiceSettings, SimulationMode};
use petstore::domain::api_key::{KeyName, NewKey};
use petstore::domain::{
    AccountId, Actor, ApiKey, AuditEntry, AuditFilter, Deployment, Direction, Email, KeyId, NewAccount, PageLimit,
    PageQuery, Role, Timestamp, TrackedMessage,
};
use petstore::runtime::clock::Clock;
use petstore::store::Store;
use petstore::store::postgres::{self, DatabaseUrl, Postgres};
use petstore::store::sqlite::{DatabaseOptions, Options, Sqlite};
use testkit::{Database, Request, Response, TIMEOUT};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::watch;

/// 2026-11-20T09:30:00.123Z, the fixed time of a test service.
pub const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);

/// The actor of changes that a test makes.
pub const OPERATOR: Actor = Actor::command_line(NOW);

/// 2030-12-05T00:00:00Z, when `getPet` is removed.
pub const REMOVAL: Timestamp = Timestamp::from_milliseconds(1_922_659_200_000);

/// The body of a request for an available animal.
pub const REX: &str = r#"{"name":"Rex","categoryId":3}"#;

/// The body of a request for a message.
pub const HELLO: &str = r#"{"message":"Hello"}"#;

/// The size of the largest body in bytes.
pub const LARGEST: usize = 64 * 1024;

/// The options of a test service.
pub struct Setup {
    pub limits: Limits,
    pub deployment: Deployment,
    pub base_url: Option<BaseUrl>,
    /// Treats the listeners as bound to every address of the machine.
    pub any_host: bool,
    pub cors_origins: Vec<String>,
    pub security_contacts: Vec<String>,
    pub registration: Registration,
    pub trusted_proxies: Vec<Network>,
    pub rate_limit: Option<RateLimit>,
    pub simulation: SimulationMode,
    pub queue: usize,
    pub busy_timeout: Duration,
    pub tls: Option<Tls>,
    /// The URL of a PostgreSQL database, which replaces the embedded database.
    pub postgres: Option<String>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            limits: Limits { connections: Some(256), ..Limits::default() },
            deployment: Deployment::Staging,
            base_url: None,
            any_host: false,
            cors_origins: Vec::new(),
            security_contacts: Vec::new(),
            registration: Registration::Open,
            trusted_proxies: Vec::new(),
            rate_limit: None,
            simulation: SimulationMode::On,
            queue: 4_096,
            busy_timeout: Duration::from_secs(5),
            tls: None,
            postgres: None,
        }
    }
}

/// A whole service in this process: three listeners on free ports and a database in a temporary folder.
pub struct Service {
    pub store_address: SocketAddr,
    pub messages_address: SocketAddr,
    pub ops_address: SocketAddr,
    pub clock: Clock,
    pub store: Arc<Store>,
    pub api: Arc<Api>,
    pub app: App,
    pub database: Database,
    pub folder: tempfile::TempDir,
    /// A key of the account `ada@example.com`, which is staff.
    pub key: String,
    pub account: AccountId,
    stop: watch::Sender<Stop>,
    running: Option<tokio::task::JoinHandle<()>>,
}

impl Service {
    pub async fn start() -> Self {
        Self::start_with(Setup::default()).await
    }

    /// Starts a service with available animals, whose ids count from 1.
    pub async fn with_pets(count: usize) -> Self {
        let service = Self::start().await;
        service.create_pets(count).await;
        service
    }

    /// Starts a service on a new PostgreSQL database.
    pub async fn start_on_postgresql() -> Self {
        Self::start_at(&testkit::postgres::database()).await
    }

    /// Starts a service on the PostgreSQL database at `url`.
    pub async fn start_at(url: &str) -> Self {
        Self::start_with(Setup { postgres: Some(url.to_owned()), ..Setup::default() }).await
    }

    /// Tells `story` to a service on each database.
    pub fn on_every_database(story: impl AsyncFn(&Self)) {
        Self::with_pets_on_every_database(0, story);
    }

    /// Tells `story` to a service with available animals on each database.
    pub fn with_pets_on_every_database(count: usize, story: impl AsyncFn(&Self)) {
        let tell = async move |service: Self| {
            service.create_pets(count).await;
            story(&service).await;
        };
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            tell(Self::start().await).await;
            tell(Self::start_on_postgresql().await).await;
        });
    }

    pub async fn start_with(setup: Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let limits = DatabaseOptions {
            queue: setup.queue,
            write_timeout: TIMEOUT,
            busy_timeout: setup.busy_timeout,
            ..DatabaseOptions::default()
        };
        let options = Options { deployment: Some(setup.deployment), database: limits, ..Options::new(folder.path()) };
        let database = setup.postgres.clone().map_or_else(|| Database::folder(folder.path()), Database::url);
        let store = Arc::new(match setup.postgres {
            None => Store::Sqlite(Sqlite::open(&options).unwrap()),
            Some(url) => {
                let mut url = DatabaseUrl::parse(&url).unwrap();
                url.timeout = TIMEOUT;
                let options = postgres::Options { deployment: Some(setup.deployment), ..postgres::Options::new(url) };
                Store::Postgres(Box::new(Postgres::open(&options).await.unwrap()))
            }
        });
        let clock = Clock::fixed(NOW);
        let [store_listener, messages_listener, ops_listener] = [listener().await, listener().await, listener().await];
        let [store_address, messages_address, ops_address] =
            [&store_listener, &messages_listener, &ops_listener].map(|listener| listener.local_addr().unwrap());
        let scheme = if setup.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let told = |bound: SocketAddr| match setup.any_host {
            true => SocketAddr::from(([0, 0, 0, 0], bound.port())),
            false => bound,
        };
        let addresses = Addresses {
            base_url: setup.base_url.unwrap_or_else(|| BaseUrl::of_bound(&scheme, told(store_address))),
            messages_base_url: BaseUrl::of_bound(&scheme, told(messages_address)),
            staging_base_url: None,
            cors_origins: setup.cors_origins,
            security_contacts: setup.security_contacts,
            scheme,
            store_bound: told(store_address),
        };
        let settings = ServiceSettings {
            registration: setup.registration,
            trusted_proxy: setup.trusted_proxies,
            rate_limit: setup.rate_limit,
            simulation: setup.simulation,
            ..ServiceSettings::of_flags([])
        };
        let app = App::new(Arc::clone(&store), clock.clone(), addresses, &settings);
        let sockets =
            Sockets { store: Some(store_listener), messages: Some(messages_listener), operations: Some(ops_listener) };
        let (stop, stopped) = watch::channel(Stop::No);
        let running = tokio::spawn(app.clone().serve(sockets.serving(&app), setup.tls, setup.limits, stopped));
        let ada =
            NewAccount { role: Role::Staff, ..NewAccount::customer(Email::parse("ada@example.com").unwrap(), None) };
        let account = store.create_account(ada, OPERATOR).await.unwrap().unwrap();
        let key = make_key(&store, account, |key| key).await.1;
        Self {
            store_address,
            messages_address,
            ops_address,
            clock,
            store,
            api: app.api.clone(),
            app,
            database,
            folder,
            key,
            account,
            stop,
            running: Some(running),
        }
    }

    /// A request to the store listener, without a key.
    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.store_address, method, path)
    }

    /// A request to the store listener, with the service's key.
    pub fn call(&self, method: &str, path: &str) -> Request {
        self.request(method, path).key(&self.key)
    }

    /// `GET` on the store listener, with the service's key.
    pub async fn get(&self, path: &str) -> Response {
        self.call("GET", path).send().await
    }

    /// `POST` of JSON on the store listener, with the service's key.
    pub async fn post(&self, path: &str, body: &str) -> Response {
        self.call("POST", path).json(body).send().await
    }

    /// Creates available animals, whose ids count from 1 in a new service.
    pub async fn create_pets(&self, count: usize) {
        for _ in 0..count {
            assert_eq!(self.post("/v1/pets", REX).await.status(), 201);
        }
    }

    /// A request for an order of an animal.
    pub fn order(&self, key: &str, pet: i64) -> Request {
        self.request("POST", "/v1/store/orders").key(key).json(format!(r#"{{"petId":{pet}}}"#))
    }

    /// A request for a step of an order: `approve`, `deliver` or `cancel`.
    pub fn step(&self, key: &str, order: i64, step: &str) -> Request {
        self.request("POST", &format!("/v1/store/orders/{order}/{step}")).key(key)
    }

    /// The ids in a page of a list, requested with the service's key.
    pub async fn ids(&self, path: &str) -> Vec<i64> {
        self.get(path).await.ids()
    }

    /// Asserts that a list has these ids, and leads to a page with the query `next`, read or from the page cache.
    pub async fn assert_page(&self, path: &str, query: &str, ids: &[i64], next: Option<&str>) {
        for _ in 0..2 {
            let page = self.get(&format!("{path}{query}")).await;
            assert_eq!(page.ids(), ids, "{query}");
            assert_eq!(page.next_page(), next.map(|next| format!("{path}?{next}")), "{query}");
        }
    }

    /// `GET /metrics` on the operations listener.
    pub async fn metrics(&self) -> Response {
        Request::new(self.ops_address, "GET", "/metrics").send().await
    }

    /// The document that the service serves.
    pub async fn document(&self) -> serde_json::Value {
        self.request("GET", "/openapi.json").send().await.json()
    }

    /// The addresses of the three listeners.
    pub fn addresses(&self) -> [SocketAddr; 3] {
        [self.store_address, self.messages_address, self.ops_address]
    }

    /// `POST /v1/messages` on the messages listener, with the service's key.
    pub async fn message(&self, body: &str) -> Response {
        self.message_request().key(&self.key).json(body).send().await
    }

    /// A request for each operation of the API, and a second order, which is cancelled. With a key and two available
    /// animals, all of them succeed once.
    pub fn operations(&self) -> Vec<Request> {
        let example = |operation| match operation {
            Operation::CreatePet => vec![self.request_to(operation, "").json(REX)],
            Operation::PlaceOrder => vec![self.request_to(operation, "").json(r#"{"petId":1}"#)],
            Operation::ApproveOrder | Operation::DeliverOrder => vec![self.request_to(operation, "1")],
            // The first order is delivered by now.
            Operation::CancelOrder => {
                vec![self.request_to(Operation::PlaceOrder, "").json(r#"{"petId":2}"#), self.request_to(operation, "2")]
            }
            Operation::SendMessage => vec![self.request_to(operation, "").json(HELLO)],
            read if read.method() == "GET" => vec![self.request_to(read, "1")],
            other => panic!("{other:?} has no example: add one to `operations` in tests/service/mod.rs"),
        };
        Operation::documented().flat_map(example).collect()
    }

    /// A request to an operation, without a key or a body. `id` replaces the parameter of its path.
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

    /// `POST /v1/messages` on the messages listener, without a key or a body.
    pub fn message_request(&self) -> Request {
        Request::new(self.messages_address, "POST", "/v1/messages")
    }

    /// A connection of its own to the embedded database.
    pub fn connection(&self) -> rusqlite::Connection {
        let conn = rusqlite::Connection::open(self.database_file()).unwrap();
        conn.busy_timeout(TIMEOUT).unwrap();
        conn
    }

    /// Runs SQL as another program. Returns a line for each row, columns separated by `|`.
    pub fn sql(&self, sql: &str) -> String {
        self.database.sql(sql)
    }

    pub fn database_file(&self) -> std::path::PathBuf {
        self.folder.path().join("petstore.db")
    }

    /// Creates another account with a key.
    pub async fn another_account(&self, email: &str) -> (AccountId, String) {
        let new = NewAccount::customer(Email::parse(email).unwrap(), None);
        let account = self.store.create_account(new, OPERATOR).await.unwrap().unwrap();
        (account, make_key(&self.store, account, |key| key).await.1)
    }

    /// The account with this address.
    pub async fn account_of(&self, email: &str) -> AccountId {
        self.store.find_account(&Email::parse(email).unwrap()).await.unwrap().unwrap().id
    }

    /// A key of `account` that only reads.
    pub async fn reading_key(&self, account: AccountId) -> (KeyId, String) {
        make_key(&self.store, account, |key| NewKey { read_only: true, ..key }).await
    }

    /// A key that may not call `operation`: a customer's, or one that only reads. `None` if every key may call it.
    pub async fn forbidden_key(&self, operation: Operation) -> Option<String> {
        match operation.permission() {
            Permission::Staff => {
                let customer = format!("{}@example.com", operation.id());
                Some(self.another_account(&customer).await.1)
            }
            _ if operation.method() == "POST" => Some(self.reading_key(self.account).await.1),
            _ => None,
        }
    }

    /// Lists the first messages of an account.
    pub async fn messages_of(&self, account: AccountId) -> Vec<TrackedMessage> {
        let listed = self.store.list_messages_of(account, Direction::Ascending, None, PageLimit::default());
        listed.await.unwrap().0
    }

    /// Creates another key of the same account.
    pub async fn another_key(&self, expires_at: Option<Timestamp>) -> (KeyId, String) {
        make_key(&self.store, self.account, |key| NewKey { expires_at, ..key }).await
    }

    /// The rows of the audit that requests left, oldest first.
    pub async fn audit(&self) -> Vec<AuditEntry> {
        let page = PageQuery { limit: PageLimit::new(100).unwrap(), ..PageQuery::default() };
        let (rows, more) =
            self.store.list_audit(&AuditFilter { since: NOW, ..AuditFilter::default() }, page).await.unwrap();
        assert!(!more);
        rows.into_iter().filter(|row| row.actor != OPERATOR.name).collect()
    }

    /// Requests a stop. `stopped` waits until it is done.
    pub fn ask_to_stop(&self, stop: Stop) {
        self.stop.send_replace(stop);
    }

    pub async fn stopped(&mut self) {
        self.running.take().unwrap().await.unwrap();
        self.store.close().await;
    }
}

/// Creates a key of `account`, as `change` returns it.
pub async fn make_key(store: &Store, account: AccountId, change: impl FnOnce(NewKey) -> NewKey) -> (KeyId, String) {
    let key = ApiKey::generate(store.deployment());
    let new = change(NewKey::of(&key, account, KeyName::parse("test".into()).unwrap(), NOW, None));
    (store.create_key(new, OPERATOR).await.unwrap(), key.expose().to_owned())
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

impl From<&Service> for SocketAddr {
    fn from(service: &Service) -> Self {
        service.store_address
    }
}
