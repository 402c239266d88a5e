//! The server of this process. All connections lead to one PostgreSQL server, because two that accept writes hold different
//! data, for instance after a fail-over without fencing.
//!
//! Another server is used only once no connection to the last one is left and that one has not been reachable, has
//! accepted no writes or has lacked required standbys for `Limits::grace`. It must hold the same database, on the same or a later
//! timeline. A server that restarts looks like another one, because a copy of it would too.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;
use tokio_postgres::SimpleQueryRow;

use crate::error::{Error, Result};

/// Interval at which refusals of the same server are logged.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Returns a [`Server`]. Every role may call these functions. The last checkpoint, unlike the name of the current file of
/// the log, may still have the timeline from before a promotion.
pub const IDENTIFY: &str =
    "SELECT system_identifier || '/' || (SELECT oid FROM pg_database WHERE datname = current_database()),
    left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), extract(epoch FROM pg_postmaster_start_time()),
    coalesce(host(inet_server_addr()) || ':' || inet_server_port(), 'a socket') FROM pg_control_system()";

/// The identity of a running server, and of a database on it.
#[derive(Clone, Debug)]
pub struct Server {
    /// System identifier and number of the database. Standbys have those of their primary.
    database: String,
    /// Each promotion begins a new one, with a greater number.
    timeline: u32,
    /// Seconds since 1970.
    started: String,
    /// For people. Not compared.
    address: String,
}

impl Server {
    /// Parses the response to [`IDENTIFY`].
    pub fn parse(row: &SimpleQueryRow) -> Option<Self> {
        let column = |number| row.try_get(number).ok().flatten().map(str::to_owned);
        let timeline = u32::from_str_radix(&column(1)?, 16).ok()?;
        Some(Self { database: column(0)?, timeline, started: column(2)?, address: column(3)? })
    }

    fn is(&self, other: &Self) -> bool {
        self.database == other.database && self.timeline == other.timeline && self.started == other.started
    }

    /// Returns whether this server may be used after `last`.
    fn may_follow(&self, last: &Self) -> bool {
        self.database == last.database && self.timeline >= last.timeline
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { database, timeline, started, address } = self;
        write!(f, "{address} (database {database}, timeline {timeline}, started {started})")
    }
}

/// The task that drives a connection. Owns its socket.
pub type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The one server that the connections of a process lead to.
#[derive(Debug, Default)]
pub struct OneServer(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    server: Option<Server>,
    /// The drivers of its connections, and whether a supervisor checks each.
    drivers: Vec<(AbortHandle, bool)>,
    /// When it was first found without a supervised connection.
    lost: Option<Instant>,
    /// When a refusal was last logged, and the refused server.
    logged: Option<(Instant, Server)>,
}

impl OneServer {
    /// Called before each attempt to connect, so that the grace period of [`Self::elect`] begins.
    pub fn attempt(&self) {
        let mut state = self.0.lock();
        if state.lost.is_none() && !state.is_supervised() {
            state.lost = Some(Instant::now());
        }
    }

    /// Starts the driver of a connection to `server`, or returns it if that is not the one server.
    pub fn admit(&self, server: &Server, driver: Driver, is_supervised: bool) -> Result<JoinHandle<()>, Driver> {
        let mut state = self.0.lock();
        if !state.server.as_ref().is_some_and(|current| current.is(server)) {
            return Err(driver);
        }
        let driver = tokio::spawn(driver);
        state.drivers.retain(|(driver, _)| !driver.is_finished());
        state.drivers.push((driver.abort_handle(), is_supervised));
        state.lost = None;
        Ok(driver)
    }

    /// Chooses the server to use from now on, if the one in use may be left. `offered` have not been admitted. During `grace`
    /// after its connections are lost, only the last server is accepted, because a balancer may offer others first.
    pub fn elect<'a>(&self, offered: impl Iterator<Item = &'a Server>, grace: Duration) -> Result<()> {
        let mut state = self.0.lock();
        let last = state.server.clone();
        let (candidates, refused): (Vec<_>, Vec<_>) =
            offered.partition(|server| last.as_ref().is_none_or(|last| server.may_follow(last)));
        for server in &refused {
            state.log_refusal(server);
        }
        let Some(best) = candidates.iter().copied().max_by_key(|server| server.timeline) else {
            let refused = refused.first().map(ToString::to_string).unwrap_or_default();
            return unavailable(format!(
                "{refused} has another database or an earlier timeline than the server used until now: if it is right, \
                 restart this program"
            ));
        };
        if let Some(last) = &last {
            if last.is(best) {
                return Ok(());
            }
            if state.is_supervised() {
                state.log_refusal(best);
                return unavailable(format!("{best} accepts writes as well as the one in use, {last}"));
            }
            if state.lost.is_none_or(|lost| lost.elapsed() < grace) {
                return unavailable(format!("waiting for {last} before {best} is used"));
            }
            state.drivers.retain(|(driver, _)| !driver.is_finished());
            if !state.drivers.is_empty() {
                state.drivers.iter().for_each(|(driver, _)| driver.abort());
                return unavailable(format!("closing the connections to {last}"));
            }
        }
        for other in candidates.iter().filter(|server| !server.is(best)) {
            if other.database != best.database || other.timeline == best.timeline {
                return unavailable(format!("two servers accept writes, {best} and {other}: stop one of them"));
            }
            state.log_refusal(other);
        }
        if let Some(last) = last {
            tracing::warn!(%last, now = %best, "PostgreSQL server changed or restarted");
        }
        state.server = Some((*best).clone());
        Ok(())
    }

    /// Logs a server that accepts writes, unless it is the one in use, which may have several addresses.
    pub fn refuse(&self, server: &Server) {
        let mut state = self.0.lock();
        if !state.server.as_ref().is_some_and(|current| current.is(server)) {
            state.log_refusal(server);
        }
    }
}

impl State {
    fn is_supervised(&self) -> bool {
        self.drivers.iter().any(|(driver, is_supervised)| *is_supervised && !driver.is_finished())
    }

    fn log_refusal(&mut self, refused: &Server) {
        let is_new = |(at, server): &(Instant, Server)| at.elapsed() >= LOG_INTERVAL || !server.is(refused);
        if self.logged.as_ref().is_none_or(is_new) {
            let used = self.server.as_ref().map(ToString::to_string);
            tracing::error!(%refused, used, "refusing a second PostgreSQL server that accepts writes");
            self.logged = Some((Instant::now(), refused.clone()));
        }
    }
}

fn unavailable(why: impl Into<String>) -> Result<()> {
    Err(Error::Unavailable(why.into()))
}
