//! The databases that every story is told on.

use std::sync::Arc;

use petstore::store::Store;
use petstore::store::postgres::{self, Postgres};
use petstore::store::sqlite::{self, Sqlite};

use crate::postgres_server;

/// Tells `story` on a new store of each database. A database that can't be had fails the test.
pub async fn on_every_database(story: impl AsyncFn(Arc<Store>)) {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = Store::Sqlite(Sqlite::open(&sqlite::Options::new(folder.path())).unwrap());
    let postgres = Postgres::open(&postgres::Options::new(postgres_server::database())).await.unwrap();
    for store in [sqlite, Store::Postgres(postgres)] {
        let store = Arc::new(store);
        story(Arc::clone(&store)).await;
        store.close().await;
    }
}
