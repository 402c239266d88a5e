//! The relay: delivers queued messages from the database to a web server, at least once.
//!
//! A message is marked as sent only after the web server has acknowledged it. If the process is killed in between,
//! the message is sent again, and the receiver recognizes it by its id. Of all processes on a database, one is the active
//! relay: it holds a lease that ends with its connection.

mod delays;
mod deliveries;
mod endpoint;
mod outage;
mod relaying;
mod secrets;
mod status;
mod url;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::runtime::clock::Clock;
use crate::store::Store;
pub use deliveries::{Failure, Receiver};
pub use endpoint::Endpoint;
pub use relaying::run;
pub use status::Status;
pub use url::RelayUrl;

/// Maximum time that a shutdown waits for the relay.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Relay {
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
}

impl Relay {
    /// Must be called within the runtime that will run the relay. Fails if SIGHUP cannot be handled.
    pub fn start(endpoint: Endpoint, retention: Duration, store: Arc<Store>, status: Arc<Status>) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        // Registered here, because SIGHUP ends a process that does not handle it.
        let reloading = endpoint.secrets.clone().follow(signal(SignalKind::hangup())?);
        let relaying = run(endpoint, retention, store, Clock::System, status, stopped);
        let running = tokio::spawn(async {
            tokio::select! {
                () = relaying => {}
                () = reloading => {}
            }
        });
        Ok(Self { stop, running })
    }

    /// Stops the relay, and waits until messages in flight are acknowledged and marked as sent.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // On a timeout, messages not yet marked as sent are sent again later.
        let _ = timeout(SHUTDOWN_GRACE, self.running).await;
    }
}
