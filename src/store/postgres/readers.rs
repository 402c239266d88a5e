//! Reads: a few connections that everybody shares, on each of which many questions are under way at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::error::ends_connection;
use super::link::Link;
use super::session::{Statements, silent};
use super::url::DatabaseUrl;
use super::{PATIENCE, Settings};
use crate::store::{Result, StoreError};

#[derive(Debug)]
pub struct Readers {
    links: Vec<Link>,
    /// Counts reads, which take the links in turn.
    turn: AtomicUsize,
    /// How many reads wait for an answer.
    waiting: AtomicUsize,
    most_waiting: usize,
}

impl Readers {
    pub async fn open(url: &DatabaseUrl, keys_changed: &Arc<Notify>, settings: &Settings) -> Result<Self> {
        let links = (0..settings.readers).map(|_| Link::open(url, keys_changed, "read"));
        let links = futures_util::future::try_join_all(links).await?;
        Ok(Self { links, turn: AtomicUsize::new(0), waiting: AtomicUsize::new(0), most_waiting: settings.queue })
    }

    /// Asks the database. A read that was cut off together with its connection is asked again on another.
    pub async fn query(
        &self,
        statement: fn(&Statements) -> &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        let _waiting = Waiting::new(&self.waiting, self.most_waiting)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let session = self.links[turn % self.links.len()].session(deadline).await?;
            let rows = session.connection.client.query(statement(&session.statements), parameters);
            match timeout_at(deadline, rows).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) if ends_connection(&error) => session.connection.discard(),
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => {
                    session.connection.discard();
                    return Err(silent(PATIENCE));
                }
            }
        }
    }

    pub fn close(&self) {
        self.links.iter().for_each(Link::close);
    }
}

/// One read that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(waiting: &'a AtomicUsize, most: usize) -> Result<Self> {
        let this = Self(waiting);
        match waiting.fetch_add(1, Ordering::Relaxed) < most {
            true => Ok(this),
            false => Err(StoreError::Unavailable("too many reads wait for the database".into())),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
