//! `petstore serve`

use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::thread;

use rustix::process::Signal;
use tokio::runtime::{Builder, RuntimeFlavor};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::app::{self, Stops};
use crate::cli::data::backup;
use crate::cli::runtime::{BLOCKED_TIMEOUT, runtime};
use crate::cli::terminal::interrupt;
use crate::cli::{Outcome, open};
use crate::config::{Common, ServiceSettings};
use crate::domain::Deployment;
use crate::store::{Store, postgres, sqlite};

pub fn run(service: &ServiceSettings, common: &Common) -> Outcome {
    serve(async {
        let signals = Signals::listen()?;
        let store = open_for(service, common, Deployment::Production).await?;
        app::start(service, store, signals.into_stops(), async |_, _| Ok(())).await
    })
}

/// SIGINT and SIGTERM. Until they become requests to stop, they end the process at once, also the first process of a container,
/// for which the kernel has no default action.
pub struct Signals(Arc<OnceLock<UnboundedSender<()>>>);

impl Signals {
    pub fn listen() -> Outcome<Self> {
        let receiver = Arc::new(OnceLock::<UnboundedSender<()>>::new());
        let signals = Self(Arc::clone(&receiver));
        interrupt::listen([Signal::INT, Signal::TERM], move |_, _| match receiver.get() {
            // Nobody receives it while a service that has failed ends, with a status of its own.
            Some(stop) => _ = stop.send(()),
            None => std::process::exit(0),
        })?;
        Ok(signals)
    }

    pub fn into_stops(self) -> Stops {
        let (stop, stops) = unbounded_channel();
        self.0.get_or_init(|| stop);
        stops
    }
}

/// Opens the store of a service. Fails if the store cannot be opened or [`app::check`] fails, and creates no database then.
pub async fn open_for(service: &ServiceSettings, common: &Common, new: Deployment) -> Outcome<Arc<Store>> {
    backup::check(service, common)?;
    let is_embedded = common.database_url.is_none();
    if !is_embedded || !sqlite::folder(&common.data_dir).has_database() {
        app::check(service, is_embedded.then(|| common.deployment.unwrap_or(new)), false)?;
    }
    if is_embedded && sqlite::folder(&common.data_dir).is_in_use() {
        tracing::warn!(data_dir = %common.data_dir.display(), "another process has the database open");
    }
    Ok(Arc::new(open(common, Some(new), postgres::Options::new).await?))
}

/// Starts a service on the workers, and serves until it is told to stop.
///
/// This thread handles requests to stop and the operations listener, on a runtime of its own. The store is used by the workers
/// only, because a disk that does not respond blocks their threads.
pub fn serve(start: impl Future<Output = Outcome<app::Ready>>) -> Outcome {
    // Before there are threads that read the environment.
    app::passed_sockets()?;
    let workers = Arc::new(runtime()?);
    if workers.handle().runtime_flavor() == RuntimeFlavor::CurrentThread {
        // Ends with the process, because it may be blocked.
        let driven = Arc::clone(&workers);
        thread::Builder::new().name("worker".into()).spawn(move || driven.block_on(pending::<()>()))?;
    }
    let control = Builder::new_current_thread().enable_all().build()?;
    let served = workers.block_on(start).and_then(|started| control.block_on(started));
    if let Some(workers) = Arc::into_inner(workers) {
        workers.shutdown_timeout(BLOCKED_TIMEOUT);
    }
    served
}
