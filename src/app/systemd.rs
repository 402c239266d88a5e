//! Readiness notification (sd_notify(3)) and socket activation (sd_listen_fds(3)) of systemd and compatible supervisors.
//!
//! The crate `sd-notify` would replace some 15 lines. It sets no limit of time, and always reads the environment, which
//! `petstore ephemeral` ignores (`super::variable`).

use std::ffi::OsStr;
use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::time::Duration;

use listenfd::ListenFd;
use socket2::SockRef;

use crate::api::Listener;

/// Variable with the address of the supervisor's socket.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Maximum time to wait for a supervisor that does not read its notifications.
const NOTIFY_TIMEOUT: Duration = Duration::from_millis(200);

/// The state once all listeners are open.
pub const READY: &str = "READY=1";

/// The state once the shutdown has begun.
pub const STOPPING: &str = "STOPPING=1";

/// Notifies the supervisor of [`READY`] or [`STOPPING`], if it has set `NOTIFY_SOCKET`.
pub fn notify(state: &str) {
    let Some(socket) = super::variable(NOTIFY_SOCKET) else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, state, "cannot notify the supervisor");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    // `@` represents the zero byte at the start of a name in the abstract namespace.
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(NOTIFY_TIMEOUT))?;
    sender.send_to_addr(state.as_bytes(), &address).map(|_| ())
}

pub type PassedSockets = Vec<(Listener, TcpListener)>;

/// Returns the sockets passed by the supervisor, or an error message. The first call changes the environment, so the process
/// must have no thread yet that reads it.
pub fn passed_sockets() -> Result<PassedSockets, String> {
    // Kept, because `listenfd` removes the variables.
    static TAKEN: OnceLock<Result<PassedSockets, String>> = OnceLock::new();
    let taken = TAKEN.get_or_init(take).as_ref().map_err(String::clone)?;
    let copies = taken.iter().map(|(listener, socket)| Ok((*listener, socket.try_clone()?)));
    copies.collect::<io::Result<_>>().map_err(|error| error.to_string())
}

fn take() -> Result<PassedSockets, String> {
    // Without this variable, `listenfd` would take any descriptors.
    let is_named = super::variable("LISTEN_PID").is_some();
    let mut passed = if is_named { ListenFd::from_env() } else { ListenFd::empty() };
    if passed.len() == 0 {
        return Ok(Vec::new());
    }
    let names = super::variable("LISTEN_FDNAMES").and_then(|names| names.into_string().ok()).unwrap_or_default();
    let sockets = listeners(passed.len(), &names)?.into_iter().enumerate().map(|(index, listener)| {
        let socket = passed_socket(&mut passed, index);
        let why = |error| format!("cannot use the socket passed for the {} listener: {error}", listener.as_str());
        Ok((listener, socket.map_err(why)?))
    });
    sockets.collect()
}

/// Returns the listener of each socket.
fn listeners(count: usize, names: &str) -> Result<Vec<Listener>, String> {
    let mut listeners = Vec::new();
    for name in names.split(':').filter(|name| !name.is_empty()) {
        let listener = Listener::parse(name)
            .map_err(|_| format!("unknown socket `{name}`: set its FileDescriptorName to store, messages or ops"))?;
        if listeners.contains(&listener) {
            return Err(format!("two sockets have the FileDescriptorName `{name}`: a listener takes one"));
        }
        listeners.push(listener);
    }
    if count != listeners.len() {
        return Err(format!("{count} sockets were passed, but LISTEN_FDNAMES has {} names", listeners.len()));
    }
    Ok(listeners)
}

fn passed_socket(passed: &mut ListenFd, index: usize) -> io::Result<TcpListener> {
    let socket = passed.take_tcp_listener(index).ok().flatten();
    let listening = socket.filter(|socket| SockRef::from(socket).is_listener().unwrap_or(false));
    let socket = listening.ok_or_else(|| io::Error::other("not a listening TCP socket: use ListenStream="))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_assigned_to_listeners_by_name() {
        assert_eq!(listeners(0, ""), Ok(vec![]));
        assert_eq!(listeners(1, "store"), Ok(vec![Listener::Store]));
        assert_eq!(listeners(3, "ops:store:messages"), Ok(vec![Listener::Ops, Listener::Store, Listener::Messages]));
        for (count, names) in [(1, ""), (2, "store"), (1, "shop"), (2, "ops:ops"), (0, "ops")] {
            assert!(listeners(count, names).is_err(), "{count} {names}");
        }
    }
}
