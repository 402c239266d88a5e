//! Connection supervisor: keeps one connection open and replaces it in the background when it is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};

use super::commit::{await_commit, check_standbys};
use super::connect::connection::PreparedConnection;
use super::connect::connector::{Connector, retry};
use super::connect::limits::Limits;
use super::error::{CLOSED, Error, Result};

/// Interval at which a connection is checked: its server must answer, accept writes and have the required standbys.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum age of a connection, so that connections spread to hosts that were added.
const MAX_AGE: Duration = Duration::from_mins(15);

/// Delays between two attempts to connect. The first attempt follows at once. If another connection has opened meanwhile,
/// so does the next one.
const MIN_DELAY: Duration = Duration::from_millis(20);
const MAX_DELAY: Duration = Duration::from_millis(500);

/// Delay between two attempts to replace an old connection, which serves meanwhile. They may fail for long, for instance
/// because the password was changed.
const RENEWAL_DELAY: Duration = Duration::from_secs(30);

/// Owns one connection. Its task replaces the connection when it is lost or old.
#[derive(Debug)]
pub struct Supervisor {
    state: Arc<watch::Sender<State>>,
    task: AbortHandle,
    limits: Limits,
    /// True after a write that timed out. It may still wait for the standbys.
    has_timed_out: AtomicBool,
}

#[derive(Clone, Debug)]
enum State {
    Open(Arc<PreparedConnection>),
    /// The connection was lost. The next one may be open within milliseconds.
    Lost,
    /// The last attempt to reconnect failed, with its cause. Attempts continue.
    Refused(String),
    Closed,
}

impl Supervisor {
    /// Opens the connection, prepares `statements` on it and on every later one. The log calls it `name`.
    pub async fn open(connector: &Connector, statements: Vec<&'static str>, name: &'static str) -> Result<Self> {
        let (current, driver) = retry(async || connector.prepare(&statements).await).await?;
        let state = Arc::new(watch::Sender::new(State::Open(Arc::clone(&current))));
        let renewal = Renewal { connector: connector.clone(), statements, name, state: Arc::clone(&state) };
        let task = tokio::spawn(renewal.run(current, driver)).abort_handle();
        Ok(Self { state, task, limits: connector.limits(), has_timed_out: AtomicBool::new(false) })
    }

    /// Returns the connection if it is up.
    pub fn current(&self) -> Option<Arc<PreparedConnection>> {
        match &*self.state.borrow() {
            State::Open(current) if current.connection.is_usable() => Some(Arc::clone(current)),
            _ => None,
        }
    }

    /// Returns the connection, or the next one if it opens before `deadline`. Fails at once if the last attempt to
    /// reconnect failed.
    pub async fn connection(&self, deadline: Instant) -> Result<Arc<PreparedConnection>> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let mut state = self.state.subscribe();
        let settled = |state: &State| match state {
            State::Open(current) => current.connection.is_usable(),
            State::Lost => false,
            State::Refused(_) | State::Closed => true,
        };
        let state = timeout_at(deadline, state.wait_for(settled)).await.map(|state| state.map(|state| state.clone()));
        Err(Error::Unavailable(match state {
            Ok(Ok(State::Open(current))) => return Ok(current),
            Ok(Ok(State::Refused(why))) => format!("no connection to PostgreSQL ({why})"),
            Ok(Ok(State::Closed)) => CLOSED.into(),
            _ => "no connection to PostgreSQL in time".into(),
        }))
    }

    /// Executes a write on the connection.
    ///
    /// Fails with [`Error::Unknown`] if it is unknown whether the write was committed.
    pub async fn write<T>(
        &self,
        write: impl AsyncFnOnce(&PreparedConnection) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        let prepared = self.connection(Instant::now() + self.limits.reconnect()).await?;
        let (began, limit) = (Instant::now(), self.limits.commit());
        if self.has_timed_out.load(Ordering::Relaxed) {
            check_standbys(&prepared, began, limit).await?;
        }
        let written = await_commit(&prepared.connection, began, limit, write(&prepared)).await;
        self.has_timed_out.store(began.elapsed() >= limit, Ordering::Relaxed);
        written
    }

    pub fn close(&self) {
        self.task.abort();
        // The connection ends when its last user drops it.
        self.state.send_replace(State::Closed);
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.close();
    }
}

/// Replaces the connection of a supervisor.
struct Renewal {
    connector: Connector,
    statements: Vec<&'static str>,
    name: &'static str,
    state: Arc<watch::Sender<State>>,
}

impl Renewal {
    async fn run(self, mut current: Arc<PreparedConnection>, mut driver: JoinHandle<()>) {
        loop {
            let renewed = match timeout(MAX_AGE, self.lost(&current, &mut driver)).await {
                Ok(why) => Err(why),
                // An old connection serves until the next one is open, and its users finish on it. It can still be lost
                // before that.
                Err(_) => tokio::select! {
                    next = self.open_next(false) => Ok(next),
                    why = self.lost(&current, &mut driver) => Err(why),
                },
            };
            (current, driver) = match renewed {
                Ok(next) => next,
                Err(why) => {
                    current.connection.discard();
                    tracing::warn!(connection = self.name, why, "PostgreSQL connection lost, reconnecting");
                    self.publish(State::Lost);
                    let next = self.open_next(true).await;
                    tracing::info!(connection = self.name, "PostgreSQL connection restored");
                    next
                }
            };
            self.publish(State::Open(Arc::clone(&current)));
        }
    }

    /// Waits until the connection is lost and returns the cause.
    async fn lost(&self, prepared: &PreparedConnection, driver: &mut JoinHandle<()>) -> String {
        let limit = self.connector.limits().operation();
        let mut checks = interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = &mut *driver => return "the connection was closed".into(),
                _ = checks.tick() => match self.connector.refusal(prepared, limit).await {
                    Ok(None) => {}
                    Ok(Some(why)) => return why,
                    Err(error) => return error.to_string(),
                },
            }
        }
    }

    /// Publishes the state, unless the supervisor was closed: the task may still be at its last step then.
    fn publish(&self, now: State) {
        self.state.send_if_modified(|state| {
            let open = !matches!(state, State::Closed);
            if open {
                *state = now;
            }
            open
        });
    }

    /// Retries until a connection is open.
    async fn open_next(&self, lost: bool) -> (Arc<PreparedConnection>, JoinHandle<()>) {
        let mut attempts = 0;
        loop {
            // Created before the attempt, so that it notices a connection that opens meanwhile.
            let another = self.connector.reopened.notified();
            match self.connector.prepare(&self.statements).await {
                Ok(opened) => {
                    self.connector.reopened.notify_waiters();
                    return opened;
                }
                // The first attempt may fail for the same reason as the connection. An old connection still serves.
                Err(error) if lost && attempts > 0 => self.publish(State::Refused(error.to_string())),
                Err(error) if !lost && attempts == 0 => {
                    let why = error.to_string();
                    tracing::warn!(connection = self.name, why, "PostgreSQL connection not renewed, trying again");
                }
                Err(_) => {}
            }
            tokio::select! {
                () = sleep(if lost { delay(attempts) } else { RENEWAL_DELAY }) => {}
                // The next attempt will probably succeed, too, so requests wait for it.
                () = another => if lost { self.publish(State::Lost) },
            }
            attempts += 1;
        }
    }
}

/// Returns a delay that doubles with each attempt. A random part of up to half is taken off, so that processes that lost the
/// same server do not reconnect at the same time.
fn delay(attempts: u32) -> Duration {
    let delay = MIN_DELAY.saturating_mul(1 << attempts.min(10)).min(MAX_DELAY);
    // Without random bytes, waits for the full delay.
    let random = getrandom::u32().unwrap_or(u32::MAX);
    delay / 2 + (delay / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_maximum_and_differ() {
        let delays: Vec<_> = (0..40).map(delay).collect();
        assert!(delays[0] >= MIN_DELAY / 2 && delays[0] <= MIN_DELAY, "{delays:?}");
        assert!(delays[3] > delays[0], "{delays:?}");
        let long = &delays[10..];
        assert!(long.iter().all(|delay| *delay >= MAX_DELAY / 2 && *delay <= MAX_DELAY), "{delays:?}");
        assert!(long.iter().any(|delay| *delay != long[0]), "{delays:?}");
    }
}
