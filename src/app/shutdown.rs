//! Signals and the order of the shutdown.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bounded_http::Stop;
use futures_util::future::OptionFuture;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Result;
use super::backup_schedule::Backups;
use super::systemd;
use crate::api::Api;
use crate::relay::Relay;
use crate::telemetry::{self, traces};

/// Maximum time for the responses to waiting requests after the store has failed, or if it does not outlive the process.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// Maximum time for the database to close. Closing takes longer only if the disk does not respond, or while a large WAL is
/// written back, which the next start continues.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The requests to stop. Their sender outlives the service.
pub type Stops = UnboundedReceiver<()>;

/// `systemctl reload` must not end a service that has no certificate to reload.
pub fn ignore_reloads() -> io::Result<()> {
    // The handler stays.
    if super::variable(systemd::NOTIFY_SOCKET).is_some() { signal(SignalKind::hangup()).map(drop) } else { Ok(()) }
}

/// Waits for `server` to end. Asks it to drain on the first request and to close all connections on the second, or soon after the
/// first if the store does not outlive the process.
///
/// # Errors
///
/// If the store fails, the process cannot serve any longer. Waiting requests get their errors, then the server ends.
pub async fn until_stopped(
    mut server: JoinHandle<()>,
    api: &Api,
    stop: &watch::Sender<Stop>,
    stops: &mut Stops,
) -> Result<()> {
    let store = Arc::clone(&api.store);
    // On a read-only disk, it examines the files.
    let mut failed = api.workers.runtime.spawn(async move { store.failed().await });
    let mut failure = None;
    loop {
        tokio::select! {
            ended = &mut server => {
                ended?;
                return failure.map_or(Ok(()), |why: String| Err(why.into()));
            }
            _ = stops.recv() => {
                tracing::info!("stopping");
                systemd::notify(systemd::STOPPING);
                stop.send_modify(|stop| *stop = if *stop == Stop::No { Stop::Drain } else { Stop::Now });
            }
            Ok(why) = &mut failed, if failure.is_none() => {
                tracing::error!(why, "the store failed, stopping");
                systemd::notify(systemd::STOPPING);
                failure = Some(why);
                // Requests that need the store fail at once.
                stop.send_replace(Stop::Drain);
            }
        }
        if failure.is_some() || !api.store.is_durable() {
            let stop = stop.clone();
            tokio::spawn(async move {
                tokio::time::sleep(SHUTDOWN_GRACE).await;
                stop.send_replace(Stop::Now);
            });
        }
    }
}

/// Ends everything but the server. A request ends the wait.
pub async fn finish(backups: Option<Backups>, relay: Option<Relay>, api: &Api, stops: &mut Stops) {
    let parts = async {
        traces::flush().await;
        OptionFuture::from(backups.map(Backups::stop)).await;
        OptionFuture::from(relay.map(Relay::stop)).await;
        let store = Arc::clone(&api.store);
        let closed = api.workers.runtime.spawn(async move { store.close().await });
        if timeout(CLOSE_TIMEOUT, closed).await.is_err() {
            tracing::error!("timed out closing the database, exiting");
        }
    };
    tokio::select! {
        () = parts => {}
        // Acknowledged writes are in the log on the disk. Messages whose acknowledgement is not stored are sent again.
        _ = stops.recv() => tracing::warn!("second signal received, exiting without closing the database"),
    }
}

/// Listens for the signals that change the log level: SIGUSR1 logs more, a level at a time, and SIGUSR2 less. Returns a future
/// that follows them and never ends.
pub fn follow_log_level() -> io::Result<impl Future<Output = ()>> {
    let (mut more, mut less) = (signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?);
    Ok(async move {
        loop {
            tokio::select! {
                _ = more.recv() => telemetry::change_level(1),
                _ = less.recv() => telemetry::change_level(-1),
            }
        }
    })
}
