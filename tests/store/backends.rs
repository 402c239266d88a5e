//! The databases that every story is told on.

use std::sync::Arc;

use petstore::store::Store;
use petstore::store::postgres::{self, DatabaseUrl, Postgres};
use petstore::store::sqlite::{self, Sqlite};

/// Tells `story` on a new store of each database. A database that can't be had fails the test.
pub async fn on_every_database(story: impl AsyncFn(Arc<Store>)) {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = Store::Sqlite(Sqlite::open(&sqlite::Options::new(folder.path())).unwrap());
    let postgres = Postgres::open(&postgres::Options::new(database_url())).await.unwrap();
    for store in [sqlite, Store::Postgres(Box::new(postgres))] {
        let store = Arc::new(store);
        story(Arc::clone(&store)).await;
        store.close().await;
    }
}

/// A new PostgreSQL database.
pub fn database_url() -> DatabaseUrl {
    DatabaseUrl::parse(&testkit::postgres::database()).unwrap()
}
