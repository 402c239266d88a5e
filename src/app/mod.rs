//! Composes the program: state, listeners, background jobs and shutdown.

mod background;
mod backup_schedule;
mod listeners;
mod shutdown;
mod systemd;

use std::error::Error;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bounded_http::{Access, Limits, Server, Stop, Tls};
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api::{Addresses, Api, ListenerService};
use crate::config::{Registration, ServiceSettings, plaintext_check};
use crate::console::Console;
use crate::domain::Deployment;
use crate::net::regular_file::{START_TIMEOUT, in_time};
use crate::relay::Endpoint;
use crate::runtime::clock::Clock;
use crate::store::Store;
pub use listeners::Sockets;
pub use shutdown::Stops;
use shutdown::follow_log_level;
use systemd::PassedSockets;
pub use systemd::passed_sockets;

/// Maximum time to store the last uses of API keys at the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// True for a store that must not depend on what started it.
static IGNORES_ENVIRONMENT: AtomicBool = AtomicBool::new(false);

/// Ignores the sockets, the supervisor and the collector of traces that the environment names.
pub fn ignore_environment() {
    IGNORES_ENVIRONMENT.store(true, Ordering::Relaxed);
}

/// Returns a variable of the environment, unless it is ignored.
fn variable(name: &str) -> Option<OsString> {
    if IGNORES_ENVIRONMENT.load(Ordering::Relaxed) { None } else { std::env::var_os(name) }
}

/// Errors are for the operator.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The state of the program. Cheap to clone.
#[derive(Clone, Debug)]
pub struct App {
    pub api: Arc<Api>,
    pub console: Arc<Console>,
    audit_retention: Duration,
}

impl App {
    /// Creates the state. The runtime of the caller becomes that of the workers.
    pub fn new(store: Arc<Store>, clock: Clock, addresses: Addresses, settings: &ServiceSettings) -> Self {
        let api = Arc::new(Api::new(store, clock, addresses, settings.of_api()));
        let console = Arc::new(Console::new(Arc::clone(&api), settings.registration == Registration::Open));
        Self { api, console, audit_retention: settings.audit_retention }
    }

    /// Serves `listeners` until `stop` says otherwise or its sender is dropped. Does not close the store.
    ///
    /// The operations listener runs on the runtime of the caller, everything else on the workers.
    pub async fn serve(
        self,
        listeners: Vec<(TcpListener, ListenerService, Access)>,
        tls: Option<Tls>,
        limits: Limits,
        stop: watch::Receiver<Stop>,
    ) {
        if let Some(tls) = &tls {
            let _ = self.api.certificate.set(tls.clone());
        }
        let jobs = background::start(&self, tls.clone());
        let server = Server { listeners, tls, limits, public: self.api.workers.runtime.clone() };
        let mut draining = stop.clone();
        let drain = async {
            // An error means that the sender was dropped, which is a stop too.
            let _ = draining.wait_for(|stop| *stop >= Stop::Drain).await;
            self.api.draining.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // In this order, so that `/readyz` fails before the listeners close.
            biased;
            () = drain => {}
            () = server.run(stop.clone()) => {}
        }
        jobs.abort();
        self.api.traffic.refusals.report();
        self.console.unstored_sessions.report();
        self.console.wrong_passwords.report();
        if *stop.borrow() != Stop::Now {
            let api = Arc::clone(&self.api);
            let flush = self.api.workers.runtime.spawn(async move { api.api_keys.flush().await });
            // Not worth a longer wait for a disk that does not respond.
            let _ = tokio::time::timeout(FLUSH_TIMEOUT, flush).await;
        }
    }
}

/// Fails if [`start`] would, as far as that is known without the store. `deployment` is that of the database, or of the new
/// one. If a service `may_run`, addresses that are used are only a warning.
pub fn check(settings: &ServiceSettings, deployment: Option<Deployment>, may_run: bool) -> Result<()> {
    let (.., passed, settings) = prepare(settings)?;
    let warnings = deployment.map(|deployment| plaintext_check::check(&settings, deployment)).transpose()?;
    let checked = Sockets::bind(&settings, passed, may_run).map(drop);
    if may_run || checked.is_err() {
        warnings.iter().flatten().for_each(|it| tracing::warn!("{it}"));
    }
    checked
}

/// A service that is ready to accept connections, and serves once it is awaited.
pub type Ready = BoxFuture<'static, Result<()>>;

/// Opens the listeners and starts the jobs. The runtime of the caller becomes that of the workers.
///
/// Fails, and starts nothing, if a setting, a file that it names, or an address cannot be used.
///
/// Calls `ready` when all listeners are open, with the address of the operations listener if this process opens it.
///
/// The returned future serves until `stops` has a request. A second one closes all connections at once. It fails if the store
/// fails, for instance because a sync did. `petstore serve` awaits it on a thread other than the workers', because a disk that
/// does not respond blocks those.
pub async fn start(
    settings: &ServiceSettings,
    store: Arc<Store>,
    mut stops: Stops,
    ready: impl AsyncFnOnce(&Addresses, Option<SocketAddr>) -> Result<()>,
) -> Result<Ready> {
    shutdown::ignore_reloads()?;
    let log_level = follow_log_level()?;
    let (tls, endpoint, passed, settings) = prepare(settings)?;
    let settings = &settings;
    for warning in plaintext_check::check(settings, store.deployment())? {
        tracing::warn!("{warning}");
    }
    let sockets = Sockets::bind(settings, passed, false)?;
    let addresses = sockets.addresses(settings);
    let app = App::new(Arc::clone(&store), Clock::System, addresses.clone(), settings);
    if sockets.store.is_some() && !store.has_accounts().await? {
        tracing::info!("{}", first_account(settings, &addresses));
    }
    if sockets.store.is_some()
        && store.deployment() == Deployment::Production
        && settings.registration == Registration::Open
    {
        tracing::info!("registration is open: visitors can create an account (--registration)");
    }
    sockets.log(&store);
    let operations = listeners::bound(sockets.operations.as_ref());
    ready(&addresses, operations).await?;
    let backups = background::start_backups(settings, &app.api)?;
    let relay = background::start_relay(endpoint, settings, &app.api)?;
    background::start_traces(&store);
    let connections = settings.max_connections.map(|most| most as usize);
    let limits = Limits { drain_delay: settings.drain_delay, connections, ..Limits::default() };
    let listeners = sockets.serving(&app);
    Ok(Box::pin(async move {
        tokio::spawn(log_level);
        let listeners = listeners.into_iter().map(|(socket, service, access)| {
            let socket = match access {
                Access::Public => socket,
                // Registers the socket with this runtime.
                Access::Operator => TcpListener::from_std(socket.into_std()?)?,
            };
            Ok((socket, service, access))
        });
        let listeners = listeners.collect::<std::io::Result<_>>()?;
        let api = Arc::clone(&app.api);
        let (stop, stopped) = watch::channel(Stop::No);
        let server = tokio::spawn(app.serve(listeners, tls, limits, stopped));
        systemd::notify(systemd::READY);
        let ended = shutdown::until_stopped(server, &api, &stop, &mut stops).await;
        shutdown::finish(backups, relay, &api, &mut stops).await;
        ended
    }))
}

/// Loads what the settings name. Returns the sockets that the supervisor has passed, and the settings with their addresses.
fn prepare(settings: &ServiceSettings) -> Result<(Option<Tls>, Option<Endpoint>, PassedSockets, ServiceSettings)> {
    let tls = settings.certificate()?.map(|(certificate, key)| load_tls(certificate, key)).transpose()?;
    let endpoint = Endpoint::load(settings.relay.as_ref(), settings.relay_secret_file.as_deref())?;
    let passed = passed_sockets()?;
    let settings = listeners::at_passed_addresses(settings, &passed)?;
    Ok((tls, endpoint, passed, settings))
}

/// Loads a certificate, whose files may be on a mount that hangs.
fn load_tls(certificate: &Path, key: &Path) -> Result<Tls> {
    let files = format!("{} or {}", certificate.display(), key.display());
    let late = || format!("{files}: cannot be read within {START_TIMEOUT:?}: check its mount or pipe");
    let (certificate, key) = (certificate.to_owned(), key.to_owned());
    Ok(in_time(START_TIMEOUT, move || Tls::load(&certificate, &key)).ok_or_else(late)??)
}

/// Says how to create the first account.
fn first_account(settings: &ServiceSettings, addresses: &Addresses) -> String {
    match settings.registration {
        Registration::Open => {
            format!("There is no account yet. Create the first one at {}/sign-up", addresses.base_url.root())
        }
        Registration::Closed => "There is no account yet, and registration is closed. Create the first one with \
                                 `petstore account create EMAIL --password-stdin`"
            .to_owned(),
    }
}
