//! The listeners: their sockets and what they serve.

use std::io::ErrorKind;
use std::net::SocketAddr;

use bounded_http::Access;
use tokio::net::{TcpListener, TcpSocket};

use super::systemd::PassedSockets;
use super::{App, Result};
use crate::api::{Addresses, Listener, ListenerService};
use crate::config::ServiceSettings;
use crate::console;
use crate::store::Store;

/// Connections that the system queues until the process accepts them. tokio's own `bind` queues 128, fewer than may
/// arrive at once; beyond the queue, clients wait a second before they try again. The system may allow less.
const BACKLOG: u32 = 4_096;

/// The sockets of the listeners that this process opens.
#[derive(Debug, Default)]
pub struct Sockets {
    pub store: Option<TcpListener>,
    pub messages: Option<TcpListener>,
    pub operations: Option<TcpListener>,
}

impl Sockets {
    /// Takes the sockets that the supervisor has passed and opens the others. Fails if an address cannot be used. If another
    /// service `may_run`, only warns of one that is in use.
    pub fn bind(settings: &ServiceSettings, mut passed: PassedSockets, may_run: bool) -> Result<Self> {
        if settings.listeners.is_empty() {
            return Err("there is no listener to open: `listeners` is empty".into());
        }
        let mut tried = Vec::new();
        let mut bind = |listener: Listener, flag: &str| -> Result<Option<TcpListener>> {
            let address = settings.address(listener);
            if !settings.listeners.contains(&listener) {
                return Ok(None);
            }
            if let Some(at) = passed.iter().position(|(passed_for, _)| *passed_for == listener) {
                return Ok(Some(TcpListener::from_std(passed.swap_remove(at).1)?));
            }
            let is_twice = tried.iter().any(|other| overlap(*other, address));
            tried.push(address);
            let error = match listen(address) {
                Ok(socket) => return Ok(Some(socket)),
                Err(error) => error,
            };
            let why = format!("cannot listen on {address} ({flag}): {error}");
            if !may_run || is_twice || error.kind() != ErrorKind::AddrInUse {
                return Err(why.into());
            }
            tracing::warn!("{why}");
            Ok(None)
        };
        Ok(Self {
            store: bind(Listener::Store, "--listen")?,
            messages: bind(Listener::Messages, "--messages-listen")?,
            operations: bind(Listener::Ops, "--ops-listen")?,
        })
    }

    /// The public addresses. For a listener that another process opens, the configured ones.
    pub fn addresses(&self, settings: &ServiceSettings) -> Addresses {
        let store = bound(self.store.as_ref()).unwrap_or(settings.listen);
        let messages = bound(self.messages.as_ref()).unwrap_or(settings.messages_listen);
        settings.addresses(store, messages)
    }

    pub fn log(&self, store: &Store) {
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

    /// Pairs each socket with what it serves.
    pub fn serving(self, app: &App) -> Vec<(TcpListener, ListenerService, Access)> {
        let service = |listener, pages| ListenerService::new(listener, &app.api, pages);
        let listeners = [
            (self.store, service(Listener::Store, Some(console::routes(&app.console))), Access::Public),
            (self.messages, service(Listener::Messages, None), Access::Public),
            (self.operations, service(Listener::Ops, None), Access::Operator),
        ];
        listeners.into_iter().filter_map(|(socket, service, access)| Some((socket?, service, access))).collect()
    }
}

/// Returns the settings with the addresses of the sockets that the supervisor has passed.
pub fn at_passed_addresses(settings: &ServiceSettings, passed: &PassedSockets) -> Result<ServiceSettings> {
    let mut settings = settings.clone();
    for (listener, socket) in passed {
        if !settings.listeners.contains(listener) {
            let name = listener.as_str();
            return Err(format!("a socket is passed for the {name} listener, which `listeners` does not open").into());
        }
        let address = match listener {
            Listener::Store => &mut settings.listen,
            Listener::Messages => &mut settings.messages_listen,
            Listener::Ops => &mut settings.ops_listen,
        };
        *address = socket.local_addr()?;
    }
    Ok(settings)
}

pub fn bound(socket: Option<&TcpListener>) -> Option<SocketAddr> {
    socket.and_then(|socket| socket.local_addr().ok())
}

/// Returns whether two listeners cannot have these addresses.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let [one_ip, other_ip] = [one, other].map(|address| address.ip().to_canonical());
    one.port() == other.port() && (one_ip == other_ip || one_ip.is_unspecified() || other_ip.is_unspecified())
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Otherwise the address would stay in use for a minute after a process has ended.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
