//! Keeps a session open: whatever ends it, the next one is made in the background.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};

use super::session::Session;
use super::url::DatabaseUrl;
use super::{PATIENCE, patiently};
use crate::store::{Result, StoreError};

/// How often a session is asked whether its server is there and takes writes.
const PULSE: Duration = Duration::from_secs(1);

/// How long a session serves at most, so that connections find their way to hosts that were added.
const AGE: Duration = Duration::from_mins(15);

/// Between two attempts to connect: the first comes at once, then the pause doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Link {
    state: watch::Receiver<State>,
    closing: Arc<watch::Sender<State>>,
    keeper: AbortHandle,
}

/// Tells how a link is.
#[derive(Debug)]
pub struct Watch(watch::Receiver<State>);

impl Watch {
    pub fn is_up(&self) -> bool {
        matches!(&*self.0.borrow(), State::Open(session) if session.connection.is_usable())
    }
}

#[derive(Clone, Debug)]
enum State {
    Open(Arc<Session>),
    /// The session was lost, and the next one may be there at once.
    Lost,
    /// The server could not be reached, and why. It is tried again and again.
    Refused(String),
    Closed,
}

impl Link {
    pub async fn open(url: &DatabaseUrl, keys_changed: &Arc<Notify>, name: &'static str) -> Result<Self> {
        let (session, driver) = patiently(async || Session::open(url, Arc::clone(keys_changed)).await).await?;
        let (closing, state) = watch::channel(State::Open(Arc::clone(&session)));
        let closing = Arc::new(closing);
        let keeper =
            Keeper { url: url.clone(), keys_changed: Arc::clone(keys_changed), name, state: Arc::clone(&closing) };
        let keeper = tokio::spawn(keeper.keep(session, driver)).abort_handle();
        Ok(Self { state, closing, keeper })
    }

    /// The session there is, or the one that comes before `deadline`. Where the server was just found to be out of
    /// reach, nobody waits.
    pub async fn session(&self, deadline: Instant) -> Result<Arc<Session>> {
        if let State::Open(session) = &*self.state.borrow()
            && session.connection.is_usable()
        {
            return Ok(Arc::clone(session));
        }
        let mut state = self.state.clone();
        let settled = |state: &State| match state {
            State::Open(session) => session.connection.is_usable(),
            State::Lost => false,
            State::Refused(_) | State::Closed => true,
        };
        let state = timeout_at(deadline, state.wait_for(settled)).await.map(|state| state.map(|state| state.clone()));
        Err(StoreError::Unavailable(match state {
            Ok(Ok(State::Open(session))) => return Ok(session),
            Ok(Ok(State::Refused(why))) => format!("no connection to PostgreSQL ({why})"),
            Ok(Ok(State::Lost) | Err(_)) | Err(_) if self.is_open() => "no connection to PostgreSQL in time".into(),
            _ => "the store is closed".into(),
        }))
    }

    /// A look at it from elsewhere.
    pub fn watch(&self) -> Watch {
        Watch(self.state.clone())
    }

    pub fn is_open(&self) -> bool {
        !matches!(&*self.state.borrow(), State::Closed)
    }

    pub fn close(&self) {
        self.keeper.abort();
        // The session ends with the last who holds it.
        self.closing.send_replace(State::Closed);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

struct Keeper {
    url: DatabaseUrl,
    keys_changed: Arc<Notify>,
    name: &'static str,
    state: Arc<watch::Sender<State>>,
}

impl Keeper {
    async fn keep(self, mut session: Arc<Session>, mut driver: JoinHandle<()>) {
        loop {
            let renewed = match timeout(AGE, lost(&session, &mut driver)).await {
                Ok(why) => Err(why),
                // At its age a session goes on until the next one is there, and whoever uses it then finishes on it.
                // Until then it can be lost like any other.
                Err(_) => tokio::select! {
                    next = self.open_next(false) => Ok(next),
                    why = lost(&session, &mut driver) => Err(why),
                },
            };
            (session, driver) = match renewed {
                Ok(next) => next,
                Err(why) => {
                    session.connection.discard();
                    tracing::warn!(connection = self.name, why, "a connection to PostgreSQL was lost");
                    self.tell(State::Lost);
                    let next = self.open_next(true).await;
                    tracing::info!(connection = self.name, "connected to PostgreSQL again");
                    next
                }
            };
            self.tell(State::Open(Arc::clone(&session)));
        }
    }

    /// A link that was closed stays so, although the keeper may still be at its last step.
    fn tell(&self, now: State) {
        self.state.send_if_modified(|state| {
            let open = !matches!(state, State::Closed);
            if open {
                *state = now;
            }
            open
        });
    }

    /// Tries until it succeeds.
    async fn open_next(&self, lost: bool) -> (Arc<Session>, JoinHandle<()>) {
        let mut pause = PAUSE;
        loop {
            match Session::open(&self.url, Arc::clone(&self.keys_changed)).await {
                Ok(opened) => return opened,
                // A first attempt may meet what ended the session. One that is only old still serves.
                Err(error) if lost && pause > PAUSE => self.tell(State::Refused(error.to_string())),
                Err(_) => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Waits until the session is lost, and says why.
async fn lost(session: &Session, driver: &mut JoinHandle<()>) -> String {
    let mut pulse = interval(PULSE);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut *driver => return "the connection was closed".into(),
            _ = pulse.tick() => match session.takes_writes(PATIENCE).await {
                Ok(true) => {}
                Ok(false) => return "the server takes no writes any more".into(),
                Err(error) => return error.to_string(),
            },
        }
    }
}
