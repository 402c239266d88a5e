//! Stores on each database, and rows in them.

use std::sync::Arc;

use petstore::domain::api_key::{KeyName, NewKey};
use petstore::domain::{AccountId, Actor, ApiKey, Email, NewAccount, NewPet, PetName, PetStatus, Timestamp};
use petstore::store::Store;
use petstore::store::postgres::{self, DatabaseUrl, Postgres};
use petstore::store::sqlite::{self, Sqlite};

/// 2026-11-20T09:30:00.123Z.
pub const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);

/// The actor of changes that a test makes.
pub const OPERATOR: Actor = Actor::command_line(NOW);

/// Tells `story` to a new store on each database.
pub async fn on_every_database(story: impl AsyncFn(Arc<Store>)) {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = open_sqlite(&sqlite::Options::new(folder.path()));
    let postgresql = open_postgresql(&testkit::postgres::database()).await;
    for store in [sqlite, postgresql] {
        story(Arc::clone(&store)).await;
        store.close().await;
    }
}

pub fn open_sqlite(options: &sqlite::Options) -> Arc<Store> {
    Arc::new(Store::Sqlite(Sqlite::open(options).unwrap()))
}

/// Opens the PostgreSQL database at `url`, as each process does.
pub async fn open_postgresql(url: &str) -> Arc<Store> {
    open_with(&options(url)).await
}

pub async fn open_with(options: &postgres::Options) -> Arc<Store> {
    Arc::new(Store::Postgres(Box::new(Postgres::open(options).await.unwrap())))
}

pub fn options(url: &str) -> postgres::Options {
    postgres::Options::new(DatabaseUrl::parse(url).unwrap())
}

pub fn email(address: &str) -> Email {
    Email::parse(address).unwrap()
}

/// Creates an account without a password.
pub async fn account(store: &Store, address: &str) -> AccountId {
    store.create_account(NewAccount::customer(email(address), None, NOW), OPERATOR).await.unwrap().unwrap()
}

pub fn new_key(key: &ApiKey, account: AccountId, expires_at: Option<Timestamp>) -> NewKey {
    let name = KeyName::parse("test".into()).unwrap();
    NewKey { expires_at, ..NewKey::of(key, account, name, NOW, None) }
}

pub fn new_pet(name: &str, status: PetStatus) -> NewPet {
    NewPet { status, ..NewPet::new(PetName::parse(name.to_owned()).unwrap(), 1) }
}

/// Creates an animal and returns its id.
pub async fn create_pet(store: &Store, name: &str, status: PetStatus) -> petstore::store::Result<i64> {
    store.create_pet(new_pet(name, status), None).await.map(|outcome| outcome.executed().unwrap().id)
}
