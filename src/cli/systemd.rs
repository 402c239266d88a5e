//! What systemd and its like expect of a service: to be told how it stands (sd_notify(3)), and to take the sockets that were
//! opened for it (sd_listen_fds(3)).

use std::ffi::OsStr;
use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::config::Listener;

/// The number of the first descriptor that is passed.
const FIRST: i32 = 3;

/// How the service stands.
#[derive(Clone, Copy, Debug)]
pub enum Standing {
    /// The listeners are open.
    Ready,
    /// A stop was asked for.
    Stopping,
}

/// Tells whoever started the process, where they wish to be told.
pub fn notify(standing: Standing) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let state = match standing {
        Standing::Ready => "READY=1",
        Standing::Stopping => "STOPPING=1",
    };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, "can't tell the supervisor {state}");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    // An `@` stands for the zero byte that names in the abstract namespace begin with.
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(|_| ())
}

/// The sockets that were opened for the listeners. The error is for a person.
pub fn passed_sockets() -> Result<Vec<(Listener, TcpListener)>, String> {
    let variable = |name| std::env::var(name).ok();
    // The variables are inherited by children too, for whom they are not meant.
    let is_ours = variable("LISTEN_PID").is_some_and(|pid| pid == getpid().as_raw_pid().to_string());
    let Some(count) = variable("LISTEN_FDS").filter(|_| is_ours) else { return Ok(Vec::new()) };
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let listeners = listeners(&count, &names)?;
    let sockets = (FIRST..).zip(listeners).map(|(descriptor, listener)| {
        let socket = passed_socket(descriptor);
        socket
            .map(|socket| (listener, socket))
            .map_err(|error| format!("the socket passed for the {listener} listener: {error}"))
    });
    sockets.collect()
}

/// The listener of each of the sockets.
fn listeners(count: &str, names: &str) -> Result<Vec<Listener>, String> {
    let mut listeners = Vec::new();
    for name in names.split(':').filter(|name| !name.is_empty()) {
        let listener = match name {
            "store" => Listener::Store,
            "messages" => Listener::Messages,
            "ops" => Listener::Ops,
            other => {
                return Err(format!(
                    "a socket is passed as `{other}`: its FileDescriptorName is store, messages or ops"
                ));
            }
        };
        if listeners.contains(&listener) {
            return Err(format!("two sockets are passed as `{name}`, and a listener has one"));
        }
        listeners.push(listener);
    }
    if count != listeners.len().to_string() {
        return Err(format!("{count} sockets are passed and {} named (LISTEN_FDNAMES)", listeners.len()));
    }
    Ok(listeners)
}

/// To make a bare number an owned descriptor takes `unsafe`, since it might be anybody's. To have the system copy the
/// descriptor out of a process, be it this one, does not.
fn passed_socket(descriptor: i32) -> io::Result<TcpListener> {
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    let socket = TcpListener::from(pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty())?);
    // Else it is no socket of TCP.
    socket.local_addr()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_belong_to_the_listeners_they_are_named_for() {
        assert_eq!(listeners("0", ""), Ok(vec![]));
        assert_eq!(listeners("1", "store"), Ok(vec![Listener::Store]));
        assert_eq!(listeners("3", "ops:store:messages"), Ok(vec![Listener::Ops, Listener::Store, Listener::Messages]));
        for (count, names) in [("1", ""), ("2", "store"), ("x", "store"), ("1", "shop"), ("2", "ops:ops"), ("0", "ops")]
        {
            assert!(listeners(count, names).is_err(), "{count} {names}");
        }
    }
}
