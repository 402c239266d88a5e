//! Stores on each database, and rows in them.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use petstore::domain::account::PasswordDigest;
use petstore::domain::api_key::{KeyName, NewKey};
use petstore::domain::session::NewSession;
use petstore::domain::{
    AccountId, Actor, ApiKey, Deployment, Email, KeyId, Message, MessageIds, MessageText, NewAccount, NewPet, PetName,
    PetStatus, Secret, SessionToken, Timestamp,
};
use petstore::store::postgres::{self, DatabaseUrl, Postgres};
use petstore::store::sqlite::{self, Sqlite};
use petstore::store::{Outcome, PetSource, Store};
use testkit::TIMEOUT;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

/// 2026-11-20T09:30:00.123Z.
pub const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);

/// The actor of changes that a test makes.
pub const OPERATOR: Actor = Actor::command_line(NOW);

pub trait Executed<T> {
    /// Returns the result of a write that was carried out now.
    fn executed(self) -> Option<T>;
}

impl<T, R> Executed<T> for Outcome<T, R> {
    fn executed(self) -> Option<T> {
        if let Outcome::Executed(value) = self { Some(value) } else { None }
    }
}

/// Tells `story` to a new store on each database.
pub fn on_every_database(story: impl AsyncFn(Arc<Store>)) {
    on_every_database_with_sql(async |store, _| story(store).await);
}

/// Tells `story` to a new store on each database, with a way to run SQL as another program.
pub fn on_every_database_with_sql(story: impl AsyncFn(Arc<Store>, &dyn Fn(&str))) {
    Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap().block_on(async move {
        let folder = tempfile::tempdir().unwrap();
        let options = sqlite::Options { create: Some(Deployment::Staging), ..sqlite::Options::new(folder.path()) };
        let (sqlite, file) = (open_sqlite(&options), folder.path().join("petstore.db"));
        let run = |sql: &str| rusqlite::Connection::open(&file).unwrap().execute_batch(sql).unwrap();
        story(Arc::clone(&sqlite), &run).await;
        sqlite.close().await;

        let url = testkit::postgres::database();
        let postgresql = open_postgresql(&url).await;
        story(Arc::clone(&postgresql), &|sql| _ = testkit::postgres::query(&url, sql)).await;
        postgresql.close().await;
    });
}

/// Opens a database whose writes load does not time out.
pub fn open_sqlite(options: &sqlite::Options) -> Arc<Store> {
    let mut options = options.clone();
    options.database.write_timeout = TIMEOUT;
    Arc::new(Store::Sqlite(Sqlite::open(&options).unwrap()))
}

/// Opens the PostgreSQL database at `url`, as each process does.
pub async fn open_postgresql(url: &str) -> Arc<Store> {
    open_with(&options(url)).await
}

pub async fn open_with(options: &postgres::Options) -> Arc<Store> {
    Arc::new(Store::Postgres(Box::new(Postgres::open(options).await.unwrap())))
}

/// Runs `work` with the store, in a task of its own.
pub fn spawn<T>(store: &Arc<Store>, work: impl FnOnce(Arc<Store>) -> T) -> JoinHandle<T::Output>
where
    T: Future<Output: Send + 'static> + Send + 'static,
{
    tokio::spawn(work(Arc::clone(store)))
}

/// Load does not reach the limits of the database.
pub fn options(url: &str) -> postgres::Options {
    with_timeout(url, TIMEOUT)
}

pub fn with_timeout(url: &str, timeout: Duration) -> postgres::Options {
    let mut url = DatabaseUrl::parse(url).unwrap();
    url.timeout = timeout;
    postgres::Options { create: Some(Deployment::Staging), ..postgres::Options::new(url) }
}

pub fn email(address: &str) -> Email {
    Email::parse(address).unwrap()
}

/// Creates an account without a password.
pub async fn account(store: &Store, address: &str) -> AccountId {
    account_at(store, address, 0).await
}

/// Creates an account without a password, so many seconds after [`NOW`].
pub async fn account_at(store: &Store, address: &str, second: u64) -> AccountId {
    let actor = Actor::command_line(NOW.plus(Duration::from_secs(second)));
    store.create_account(NewAccount::customer(email(address), None), actor).await.unwrap().unwrap()
}

pub fn digest(password: &str) -> PasswordDigest {
    PasswordDigest(Secret::new(format!("$argon2id${password}")))
}

/// Creates an account with the password `digest("old")`.
pub async fn account_with_password(store: &Store, address: &str) -> (AccountId, PasswordDigest) {
    let account = NewAccount::customer(email(address), Some(digest("old")));
    (store.create_account(account, OPERATOR).await.unwrap().unwrap(), digest("old"))
}

pub fn session(account: AccountId, now: Timestamp) -> NewSession {
    NewSession { hash: SessionToken::generate().hash(), account, now }
}

pub fn new_key(key: &ApiKey, account: AccountId, expires_at: Option<Timestamp>) -> NewKey {
    let name = KeyName::parse("test".into()).unwrap();
    NewKey { expires_at, prefer: Some("code=503".into()), ..NewKey::of(key, account, name, NOW, None) }
}

/// Creates a key.
pub async fn key(store: &Store, account: AccountId, expires_at: Option<Timestamp>) -> (KeyId, ApiKey) {
    let key = ApiKey::generate(store.deployment());
    (store.create_key(new_key(&key, account, expires_at), OPERATOR).await.unwrap(), key)
}

pub fn message(account: AccountId, text: &str, now: Timestamp) -> Message {
    Message::new(&MessageIds::default(), account, MessageText::parse(text.to_owned()).unwrap(), now)
}

pub fn new_pet(name: &str, status: PetStatus) -> NewPet {
    NewPet { status, ..NewPet::new(PetName::parse(name.to_owned()).unwrap(), 1) }
}

/// Sold animals for an import or a reset, named `new 0` and so on.
pub fn animals(count: usize) -> PetSource {
    Box::new((0..count).map(|n| Ok(new_pet(&format!("new {n}"), PetStatus::Sold))))
}

/// Creates an animal and returns its id.
pub async fn create_pet(store: &Store, name: &str, status: PetStatus) -> petstore::store::Result<i64> {
    store.create_pet(new_pet(name, status), None).await.map(|outcome| outcome.executed().unwrap().id)
}
