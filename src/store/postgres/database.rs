//! An open database: its connections, and how operations use them.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::{Client, Row};

use super::rows::LONG;
use super::write_queues::{WriteQueue, WriteQueues};
use crate::domain::{Deployment, KeyHash, Message, NewOrder, NewPet, OrderTransition, PetQuery};
use crate::store::{ReaderMeter, Result};
use postgres_group_commit::{Cluster, ReadBatcher, Readers, SingleWrites, timed_out, within};

#[derive(Debug)]
pub struct Postgres {
    pub(in crate::store) cluster: Cluster,
    pub(in crate::store) deployment: Deployment,
    pub(in crate::store) id: String,
    /// Version of the server at start, without the packager's suffix, such as "17.2".
    pub(in crate::store) version: String,
    pub(in crate::store) readers: Arc<Readers>,
    pub(in crate::store) reader_meter: Arc<ReaderMeter>,
    pub(in crate::store) lists: ReadBatcher<PetQuery>,
    pub(in crate::store) finds: ReadBatcher<PetId>,
    pub(in crate::store) keys: ReadBatcher<KeyHash>,
    /// One connection for key lookups, so that a flood of unknown keys does not delay other reads.
    pub(in crate::store) key_readers: Arc<Readers>,
    pub(in crate::store) pets: WriteQueues<NewPet>,
    pub(in crate::store) messages: WriteQueues<Message>,
    pub(in crate::store) orders: WriteQueues<NewOrder>,
    pub(in crate::store) transitions: WriteQueue<OrderTransition, true>,
    /// Connection for writes that are too rare for a batch.
    pub(in crate::store) single: SingleWrites,
    /// Locked by a transaction of several statements.
    pub(in crate::store) transactions: Mutex<()>,
    /// Locked while whole tables are counted.
    pub(in crate::store) counting: Arc<Mutex<()>>,
}

/// A read of one animal.
#[derive(Debug)]
pub struct PetId(pub i64);

impl Postgres {
    /// Executes a transaction on its own connection. If it ends before its commit, the connection is dropped and the
    /// transaction with it. One runs at a time: if a standby is lost, each would keep a connection of the server busy.
    pub async fn transact<T>(&self, steps: impl AsyncFnOnce(&Client) -> Result<T>) -> Result<T> {
        let limit = self.cluster.timeout();
        let _one = timeout(limit, self.transactions.lock()).await.map_err(|_| timed_out(limit))?;
        self.cluster.transaction(steps).await
    }

    /// Runs a query that counts whole tables. One runs at a time, and it continues if its caller goes away, so that
    /// reloading a page starts no second one.
    pub async fn count(&self, sql: String) -> Result<Vec<Row>> {
        let lock = Arc::clone(&self.counting).lock_owned();
        let counting = timeout(LONG, lock).await.map_err(|_| timed_out(LONG))?;
        let connection = self.cluster.connection().await?;
        let counted = tokio::spawn(async move {
            let _one = counting;
            let limit = format!("SET statement_timeout = {}", LONG.as_millis());
            within(LONG, connection.client.batch_execute(&limit)).await?;
            Ok(within(LONG, connection.client.query(&sql, &[])).await?)
        });
        counted.await.expect("counting does not panic")
    }
}
