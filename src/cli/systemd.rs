//! What systemd and its like expect of a service: to be told how it stands (sd_notify(3)), and to take the sockets that were
//! opened for it (sd_listen_fds(3)).

use std::ffi::OsStr;
use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::config::Door;

/// The number of the first descriptor that is passed.
const FIRST: i32 = 3;

/// How the service stands.
#[derive(Clone, Copy, Debug)]
pub enum Standing {
    /// The doors are open.
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

/// The sockets that were opened for the doors. The error is for a person.
pub fn passed_sockets() -> Result<Vec<(Door, TcpListener)>, String> {
    let variable = |name| std::env::var(name).ok();
    // The variables are inherited by children too, for whom they are not meant.
    let is_ours = variable("LISTEN_PID").is_some_and(|pid| pid == getpid().as_raw_pid().to_string());
    let Some(count) = variable("LISTEN_FDS").filter(|_| is_ours) else { return Ok(Vec::new()) };
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let doors = doors(&count, &names)?;
    let sockets = (FIRST..).zip(doors).map(|(descriptor, door)| {
        let socket = listener(descriptor);
        socket.map(|socket| (door, socket)).map_err(|error| format!("the socket passed for the {door} door: {error}"))
    });
    sockets.collect()
}

/// The door of each of the sockets.
fn doors(count: &str, names: &str) -> Result<Vec<Door>, String> {
    let mut doors = Vec::new();
    for name in names.split(':').filter(|name| !name.is_empty()) {
        let door = match name {
            "store" => Door::Store,
            "messages" => Door::Messages,
            "ops" => Door::Ops,
            other => {
                return Err(format!(
                    "a socket is passed as `{other}`: its FileDescriptorName is store, messages or ops"
                ));
            }
        };
        if doors.contains(&door) {
            return Err(format!("two sockets are passed as `{name}`, and a door has one"));
        }
        doors.push(door);
    }
    if count != doors.len().to_string() {
        return Err(format!("{count} sockets are passed and {} named (LISTEN_FDNAMES)", doors.len()));
    }
    Ok(doors)
}

/// To make a bare number an owned descriptor takes `unsafe`, since it might be anybody's. To have the system copy the
/// descriptor out of a process, be it this one, does not.
fn listener(descriptor: i32) -> io::Result<TcpListener> {
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    let listener = TcpListener::from(pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty())?);
    // Else it is no socket of TCP.
    listener.local_addr()?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_belong_to_the_doors_they_are_named_for() {
        assert_eq!(doors("0", ""), Ok(vec![]));
        assert_eq!(doors("1", "store"), Ok(vec![Door::Store]));
        assert_eq!(doors("3", "ops:store:messages"), Ok(vec![Door::Ops, Door::Store, Door::Messages]));
        for (count, names) in [("1", ""), ("2", "store"), ("x", "store"), ("1", "shop"), ("2", "ops:ops"), ("0", "ops")]
        {
            assert!(doors(count, names).is_err(), "{count} {names}");
        }
    }
}
