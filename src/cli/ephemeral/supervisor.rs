//! Signals, and COMMAND.

use std::fs::File;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, PidfdFlags, Signal, getpgrp, pidfd_open, pidfd_send_signal};
use rustix::termios::tcgetpgrp;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::Level;

use super::super::{interrupt, tell};

/// Signals that end a process unless they are caught.
const SIGNALS: [Signal; 8] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::ALARM, Signal::XCPU, Signal::USR1, Signal::USR2];

/// Stops the service at a signal, or passes the signal on to COMMAND.
pub struct Supervisor {
    command: Mutex<State>,
    stop: UnboundedSender<()>,
}

enum State {
    /// COMMAND has not been started. There may be none.
    Waiting,
    Running {
        command: OwnedFd,
        end: Option<JoinHandle<io::Result<ExitStatus>>>,
    },
    /// The exit status, because COMMAND will not run.
    Refused(u8),
}

impl Supervisor {
    /// Starts to catch signals. Also returns the requests to stop the service.
    pub fn start() -> io::Result<(Arc<Self>, UnboundedReceiver<()>)> {
        let (stop, stops) = unbounded_channel();
        let supervisor = Arc::new(Self { command: Mutex::new(State::Waiting), stop });
        let runtime = Builder::new_current_thread().enable_io().build()?;
        for kind in SIGNALS {
            let _entered = runtime.enter();
            let mut received = signal(SignalKind::from_raw(kind.as_raw()))?;
            let supervisor = Arc::clone(&supervisor);
            runtime.spawn(async move {
                while received.recv().await.is_some() {
                    supervisor.receive(kind);
                }
            });
        }
        thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(pending::<()>()))?;
        Ok((supervisor, stops))
    }

    /// Stops the service.
    pub fn stop(&self) {
        // The receiver is dropped when the service has ended.
        let _ = self.stop.send(());
    }

    fn receive(&self, kind: Signal) {
        let mut state = self.state();
        match &*state {
            State::Running { command, .. } => {
                if !comes_from_terminal(kind) {
                    // Fails after COMMAND has ended.
                    let _ = pidfd_send_signal(command, kind);
                }
                return;
            }
            // They change the log level of a service.
            _ if matches!(kind, Signal::USR1 | Signal::USR2) => return,
            State::Waiting => {
                let number = kind.as_raw() as u8;
                interrupt::record(number);
                *state = State::Refused(128 + number);
            }
            State::Refused(_) => {}
        }
        self.stop();
    }

    /// Starts COMMAND, whose end stops the service. Does nothing after a signal.
    pub fn run(self: &Arc<Self>, command: &mut Command) {
        let mut state = self.state();
        if let State::Waiting = *state {
            *state = self.spawn(command).unwrap_or_else(|error| {
                tell(Level::ERROR, &format!("cannot run {}: {error}", command.get_program().display()));
                self.stop();
                State::Refused(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
            });
        }
    }

    fn spawn(self: &Arc<Self>, command: &mut Command) -> io::Result<State> {
        let mut child = command.spawn()?;
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| {
            let _ = child.kill();
        })?;
        let supervisor = Arc::clone(self);
        let end = thread::Builder::new().name("command".into()).spawn(move || {
            let ended = child.wait();
            supervisor.stop();
            ended
        })?;
        Ok(State::Running { command: process, end: Some(end) })
    }

    /// Waits for COMMAND and returns its exit status, as a shell would. Terminates it first if the store has failed.
    pub fn finish(&self, has_failed: bool) -> ExitCode {
        let end = match &mut *self.state() {
            State::Waiting => return ExitCode::SUCCESS,
            State::Refused(status) => return ExitCode::from(*status),
            State::Running { command, end } => {
                if has_failed {
                    let _ = pidfd_send_signal(&*command, Signal::TERM);
                }
                end.take()
            }
        };
        let ended = end.and_then(|end| end.join().ok()?.ok());
        ended.map_or(ExitCode::FAILURE, |status| {
            let status = status.code().or_else(|| Some(128 + status.signal()?));
            status.and_then(|status| u8::try_from(status).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.command.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether the terminal has sent this signal to its foreground processes, and so to COMMAND. A second one would
/// make many test runners exit without cleaning up.
fn comes_from_terminal(kind: Signal) -> bool {
    let foreground = || Ok::<_, io::Error>(tcgetpgrp(File::open("/dev/tty")?)?);
    matches!(kind, Signal::INT | Signal::QUIT) && foreground().is_ok_and(|group| group == getpgrp())
}
