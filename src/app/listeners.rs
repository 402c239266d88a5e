//! The listeners: their sockets and what they serve.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

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
    /// Takes the sockets that the supervisor has passed and opens the others. Fails if an address cannot be used.
    pub fn bind(settings: &ServiceSettings, mut passed: PassedSockets) -> Result<Self> {
        let mut bind = |listener: Listener, address: SocketAddr, flag: &str| -> Result<Option<TcpListener>> {
            if !settings.listeners.contains(&listener) {
                return Ok(None);
            }
            if let Some(at) = passed.iter().position(|(passed_for, _)| *passed_for == listener) {
                return Ok(Some(TcpListener::from_std(passed.swap_remove(at).1)?));
            }
            let socket = socket_at(address).and_then(|socket| socket.listen(BACKLOG));
            Ok(Some(socket.map_err(|error| cannot_listen(address, flag, &error))?))
        };
        let [store, messages, operations] = configured(settings)?.map(|(listener, at, flag)| bind(listener, at, flag));
        Ok(Self { store: store?, messages: messages?, operations: operations? })
    }

    /// Fails if [`Self::bind`] would, without listening. Warns of used addresses if a service `may_run`.
    pub fn check(settings: &ServiceSettings, passed: &PassedSockets, may_run: bool) -> Result<()> {
        let is_passed = |listener| passed.iter().any(|(passed_for, _)| *passed_for == listener);
        for (listener, address, flag) in configured(settings)? {
            if !settings.listeners.contains(&listener) || is_passed(listener) {
                continue;
            }
            match socket_at(address) {
                Ok(_) => {}
                Err(error) if may_run && error.kind() == ErrorKind::AddrInUse => {
                    tracing::warn!("{}", cannot_listen(address, flag, &error));
                }
                Err(error) => return Err(cannot_listen(address, flag, &error).into()),
            }
        }
        Ok(())
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
        let service = |listener| ListenerService::new(listener, &app.api);
        let store = service(Listener::Store).with_pages(console::routes(&app.console));
        let listeners = [
            (self.store, store, Access::Public),
            (self.messages, service(Listener::Messages), Access::Public),
            (self.operations, service(Listener::Ops), Access::Operator),
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

/// Each listener with its address and flag. Fails if none of them is to be opened, or two at one address.
fn configured(settings: &ServiceSettings) -> Result<[(Listener, SocketAddr, &'static str); 3]> {
    if settings.listeners.is_empty() {
        return Err("there is no listener to open: `listeners` is empty".into());
    }
    let configured = [
        (Listener::Store, settings.listen, "--listen"),
        (Listener::Messages, settings.messages_listen, "--messages-listen"),
        (Listener::Ops, settings.ops_listen, "--ops-listen"),
    ];
    let mut opened =
        configured.iter().filter(|(listener, at, _)| settings.listeners.contains(listener) && at.port() != 0);
    while let Some((_, address, flag)) = opened.next() {
        if let Some((_, other, other_flag)) = opened.clone().find(|(_, at, _)| overlap(*at, *address)) {
            return Err(format!("{address} ({flag}) and {other} ({other_flag}) are the same address").into());
        }
    }
    Ok(configured)
}

/// Returns whether only one of the addresses can be bound. `[::]` includes all addresses, `0.0.0.0` those of IPv4.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let includes = |all: IpAddr, one: IpAddr| all == one || all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    let (ip, other) = (a.ip().to_canonical(), b.ip().to_canonical());
    a.port() == b.port() && (includes(ip, other) || includes(other, ip))
}

fn cannot_listen(address: SocketAddr, flag: &str, error: &std::io::Error) -> String {
    format!("cannot listen on {address} ({flag}): {error}")
}

/// Returns a socket that is bound, and does not listen yet.
fn socket_at(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Otherwise the address would stay in use for a minute after a process has ended.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
