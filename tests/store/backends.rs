//! The databases that every story is told on.

use std::sync::Arc;

use petstore::store::Store;
use petstore::store::sqlite::{Options, Sqlite};

/// Tells `story` on a new store of each database. A database that can't be had fails the test.
pub async fn on_every_database(story: impl AsyncFn(Arc<Store>)) {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = Arc::new(Store::Sqlite(Sqlite::open(&Options::new(folder.path())).unwrap()));
    story(Arc::clone(&sqlite)).await;
    sqlite.close().await;
}
