//! `petstore serve`

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tracing::Level;

use super::systemd::{self, Standing};
use super::{Create, Failure, Outcome, backup, open, print, tell};
use crate::clock::Clock;
use crate::config::{Addresses, Admission, Common, Listener, Registration, Service, plaintext_check};
use crate::domain::Timestamp;
use crate::http::{self, Api, ListenerService};
use crate::relay::{self, Relay};
use crate::server::{self, Access, Limits, Stop, Tls};
use crate::store::Store;
use crate::telemetry::{self, Step};
#[cfg(feature = "otlp")]
use crate::{config::Scheme, telemetry::traces};

/// How many connections wait for the process to take them.
const BACKLOG: u32 = 4_096;
/// Maximum time to wait until the banner is written to stdout.
const BANNER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the answers to those who wait may take once the store has failed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Run the service
#[derive(Args, Debug)]
pub struct Serve {
    #[command(flatten)]
    service: Service,
    #[command(flatten)]
    common: Common,
}

impl Serve {
    pub fn run(self) -> Outcome {
        backup::check(&self.service, &self.common)?;
        runtime()?.block_on(async {
            let store = Arc::new(open(&self.common, Create::PRODUCTION).await?);
            serve(&self.service, store, async |_, _| Ok(String::new())).await
        })
    }
}

/// One worker per core: short reads of the database run on them. With a single core there is nobody to share work with,
/// and the runtime that never tries to is cheaper.
///
/// Fails if the system clock is before 1970, because dates, ids and certificates cannot express such a time.
pub fn runtime() -> std::io::Result<Runtime> {
    let now = Clock::System.now();
    if now < Timestamp::from_milliseconds(0) {
        let why = format!("the system clock is set to {now}: set it right, then start again");
        return Err(std::io::Error::other(why));
    }
    server::prepare_thread();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut builder = if cores > 1 { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().on_thread_start(server::prepare_thread).build()
}

/// Opens the sockets and serves until SIGTERM or SIGINT. A second signal stops at once. Calls `welcome` when all
/// listeners are open, with the address of the operations listener if this process opens it, and prints the returned
/// text.
pub async fn serve(
    service: &Service,
    store: Arc<Store>,
    welcome: impl AsyncFnOnce(&Addresses, Option<SocketAddr>) -> Result<String, Failure>,
) -> Outcome {
    let mut signals =
        Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
    tokio::spawn(follow_level(signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?));
    #[cfg(not(feature = "otlp"))]
    warn_of_ignored_collector();
    let tls = tls(service)?;
    let passed = systemd::passed_sockets().map_err(Failure)?;
    let service = &at_passed_addresses(service, &passed)?;
    for warning in plaintext_check::check(service, store.deployment())? {
        tell(Level::WARN, &warning);
    }
    let sockets = Sockets::bind(service, passed)?;
    let addresses = sockets.addresses(service);
    let api = Api::new(Arc::clone(&store), Clock::System, addresses.clone(), Admission::of(service));
    let defaults = Limits::default();
    let limits = Limits {
        drain_delay: service.drain_delay,
        connections: service.max_connections.map_or(defaults.connections, |most| most as usize),
        ..defaults
    };
    if sockets.store.is_some() && !store.has_accounts().await? {
        tell(Level::INFO, &first_account(service, &addresses));
    }
    sockets.log(&store);
    print_banner(welcome(&addresses, bound(sockets.operations.as_ref())).await?).await?;
    let backups = backup::start(service, &store)?;
    let relay = relay(service, &store, &api);
    let (asked, stop) = watch::channel(Stop::No);
    let listeners = sockets.into_listeners(&api, service);
    #[cfg(feature = "otlp")]
    let (listeners, exporting) = export_traces(listeners, &addresses, &store);
    let mut running = tokio::spawn(server::run(listeners, tls, api, limits, stop));
    systemd::notify(Standing::Ready);
    let mut failure = None;
    loop {
        tokio::select! {
            ended = &mut running => {
                ended?;
                break;
            }
            () = signals.next() => {
                tracing::info!("stopping");
                systemd::notify(Standing::Stopping);
                asked.send_modify(|stop| *stop = if *stop == Stop::No { Stop::Drain } else { Stop::Now });
            }
            why = store.failed(), if failure.is_none() => {
                tracing::error!(why, "the store failed, so the process ends");
                systemd::notify(Standing::Stopping);
                failure = Some(why);
                // Every request that needs the store fails at once; those that wait are still told so.
                asked.send_replace(Stop::Drain);
                let asked = asked.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(LAST_WORDS).await;
                    asked.send_replace(Stop::Now);
                });
            }
        }
    }
    #[cfg(feature = "otlp")]
    if let Some(exporting) = exporting {
        tokio::select! {
            () = exporting.flush() => {}
            // Who asks twice is in a hurry.
            () = signals.next() => {}
        }
    }
    if let Some(backups) = backups {
        backups.stop().await;
    }
    if let Some(relay) = relay {
        tokio::select! {
            () = relay.stop() => {}
            // What was not noted is sent again.
            () = signals.next() => tracing::warn!("leaving without waiting for the broker"),
        }
    }
    tokio::select! {
        () = store.close() => {}
        // What was acknowledged is in the log on the disk; what was not may be lost.
        () = signals.next() => tracing::warn!("leaving without waiting for the database"),
    }
    failure.map_or(Ok(()), |why| Err(Failure(why)))
}

/// Prints `text` from its own thread, because writing to a stdout that nobody reads would block the service.
async fn print_banner(text: String) -> Outcome {
    if text.is_empty() {
        return Ok(());
    }
    let (done, printed) = oneshot::channel();
    thread::Builder::new().name("banner".into()).spawn(move || done.send(print(&text)))?;
    match tokio::time::timeout(BANNER_TIMEOUT, printed).await {
        Ok(outcome) => outcome?,
        Err(_) => {
            tracing::warn!("stdout is not read, serving without it");
            Ok(())
        }
    }
}

/// Begins to take messages to a broker, where the service is told to.
fn relay(service: &Service, store: &Arc<Store>, api: &Api) -> Option<Relay> {
    let options = relay::Options { url: service.relay.clone()?, retention: service.relay_retention };
    let status = Arc::<relay::Status>::default();
    api.relay_by(Arc::clone(&status));
    Some(Relay::start(options, Arc::clone(store), Clock::System, status))
}

fn tls(service: &Service) -> Result<Option<Tls>, Failure> {
    match (&service.tls_cert, &service.tls_key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(Tls::load(certificate, key)?)),
        (Some(_), None) => Err(Failure("a certificate needs its private key: give --tls-key too".into())),
        (None, Some(_)) => Err(Failure("a private key needs its certificate: give --tls-cert too".into())),
    }
}

/// Has the listeners record their requests as spans, where the environment names a collector for them.
#[cfg(feature = "otlp")]
fn export_traces(
    listeners: Vec<(TcpListener, ListenerService, Access)>,
    addresses: &Addresses,
    store: &Store,
) -> (Vec<(TcpListener, ListenerService, Access)>, Option<traces::Exporting>) {
    let warn = |warning: &str| tracing::warn!("{warning}");
    let Some(settings) = traces::Settings::read(|name| std::env::var(name).ok(), warn) else {
        return (listeners, None);
    };
    let resource = traces::Resource { deployment: store.deployment().as_str() };
    match traces::start(settings, &resource, addresses.scheme == Scheme::Https) {
        Ok((tracer, exporting)) => {
            let traced = listeners.into_iter().map(|(socket, edge, access)| (socket, edge.tracing(&tracer), access));
            (traced.collect(), Some(exporting))
        }
        Err(why) => {
            tracing::warn!(why, "there are no traces");
            (listeners, None)
        }
    }
}

/// Warns if the environment names a trace collector, because a build without the feature `otlp` exports no traces.
#[cfg(not(feature = "otlp"))]
fn warn_of_ignored_collector() {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || variable("OTEL_TRACES_EXPORTER").is_some_and(|exporter| exporter != "otlp");
    let named = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]
        .into_iter()
        .find(|name| variable(name).is_some());
    if let Some(variable) = named.filter(|_| !is_off) {
        tracing::warn!(variable, "this build exports no traces, build it with `--features otlp`");
    }
}

/// The settings, with the addresses of the sockets that whoever started the process has opened for its listeners.
fn at_passed_addresses(service: &Service, passed: &[(Listener, std::net::TcpListener)]) -> Result<Service, Failure> {
    let mut service = service.clone();
    for (listener, socket) in passed {
        if !service.listeners.contains(listener) {
            return Err(Failure(format!(
                "a socket is passed for the {listener} listener, which `listeners` does not open"
            )));
        }
        let address = match listener {
            Listener::Store => &mut service.listen,
            Listener::Messages => &mut service.messages_listen,
            Listener::Ops => &mut service.ops_listen,
        };
        *address = socket.local_addr()?;
    }
    Ok(service)
}

/// Where the first account is made.
fn first_account(service: &Service, addresses: &Addresses) -> String {
    match service.registration {
        Registration::Open => {
            format!("There is no account yet. Create the first one at {}/sign-up", addresses.base_url.root())
        }
        Registration::Closed => "There is no account yet, and registration is closed. Create the first one with \
                                 `petstore account create EMAIL --password-stdin`"
            .to_owned(),
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// SIGUSR1 has the log say more, a level at a time, and SIGUSR2 less. Never ends.
async fn follow_level(mut more: Signal, mut less: Signal) {
    loop {
        tokio::select! {
            _ = more.recv() => telemetry::change_level(Step::More),
            _ = less.recv() => telemetry::change_level(Step::Less),
        }
    }
}

/// The listeners that are open.
struct Sockets {
    store: Option<TcpListener>,
    messages: Option<TcpListener>,
    operations: Option<TcpListener>,
}

impl Sockets {
    fn bind(service: &Service, mut passed: Vec<(Listener, std::net::TcpListener)>) -> Result<Self, Failure> {
        let mut bind = |listener: Listener, address: SocketAddr, flag: &str| -> Result<Option<TcpListener>, Failure> {
            if !service.listeners.contains(&listener) {
                return Ok(None);
            }
            if let Some(at) = passed.iter().position(|(for_listener, _)| *for_listener == listener) {
                return Ok(Some(TcpListener::from_std(passed.swap_remove(at).1)?));
            }
            listen(address).map(Some).map_err(|error| Failure(format!("can't listen on {address} ({flag}): {error}")))
        };
        if service.listeners.is_empty() {
            return Err(Failure("there is no listener to open: `listeners` is empty".into()));
        }
        Ok(Self {
            store: bind(Listener::Store, service.listen, "--listen")?,
            messages: bind(Listener::Messages, service.messages_listen, "--messages-listen")?,
            operations: bind(Listener::Ops, service.ops_listen, "--ops-listen")?,
        })
    }

    /// The addresses to speak of: those bound, and for a listener that another process opens those configured.
    fn addresses(&self, service: &Service) -> Addresses {
        let store = bound(self.store.as_ref()).unwrap_or(service.listen);
        let messages = bound(self.messages.as_ref()).unwrap_or(service.messages_listen);
        Addresses::new(service, store, messages)
    }

    fn log(&self, store: &Store) {
        let shown = |socket: &Option<TcpListener>| bound(socket.as_ref()).map(tracing::field::display);
        tracing::info!(
            store = shown(&self.store),
            messages = shown(&self.messages),
            ops = shown(&self.operations),
            deployment = %store.deployment(),
            version = env!("CARGO_PKG_VERSION"),
            "listening"
        );
    }

    fn into_listeners(self, api: &Api, service: &Service) -> Vec<(TcpListener, ListenerService, Access)> {
        let listeners = [
            (self.store, http::store_listener(api), Access::Public),
            (self.messages, http::messages_listener(api), Access::Public),
            (self.operations, http::operations_listener(api), Access::Operator),
        ];
        let open = |(socket, edge, access): (Option<_>, ListenerService, _)| {
            Some((socket?, edge.logging(service.log_requests), access))
        };
        listeners.into_iter().filter_map(open).collect()
    }
}

/// tokio's own `bind` queues 128, fewer than may come at once; beyond the queue, clients wait a second before they try
/// again. The system may allow less.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Else an address would stay taken for a minute after a process has ended.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn bound(socket: Option<&TcpListener>) -> Option<SocketAddr> {
    socket.and_then(|socket| socket.local_addr().ok())
}
