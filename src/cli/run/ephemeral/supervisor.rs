//! Signals, the end of stdin, and COMMAND.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::Level;

use crate::cli::tell;
use crate::cli::terminal::interrupt::{self, Cause};

/// Signals that end a process unless they are caught.
const SIGNALS: [Signal; 8] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::ALARM, Signal::XCPU, Signal::USR1, Signal::USR2];

/// Stops the service at a signal, or passes the signal on to COMMAND.
pub struct Supervisor {
    command: Mutex<State>,
    ended: Condvar,
    stop: UnboundedSender<()>,
}

#[derive(Clone, Copy)]
enum State {
    /// COMMAND has not been started. There may be none.
    Waiting,
    Running(Pid),
    /// COMMAND has ended with this status, or stdin was hung up. The signal that ended COMMAND or the process at the other
    /// end may still arrive here, and is no second request to stop.
    Stopping(u8),
    /// The exit status of COMMAND, or of a shell that cannot start it.
    Ended(u8),
}

impl Supervisor {
    /// Starts to catch signals. Also returns the requests to stop the service.
    pub fn start() -> io::Result<(Arc<Self>, UnboundedReceiver<()>)> {
        let (stop, stops) = unbounded_channel();
        let supervisor = Arc::new(Self { command: Mutex::new(State::Waiting), ended: Condvar::new(), stop });
        let receiver = Arc::clone(&supervisor);
        interrupt::listen(interrupt::not_ignored(SIGNALS), move |kind, cause| receiver.receive(kind, cause))?;
        Ok((supervisor, stops))
    }

    /// Stops the service because stdin was hung up. Does nothing after a signal.
    fn hang_up(&self) {
        let mut state = self.command.lock();
        if let State::Waiting = *state {
            *state = State::Stopping(0);
            self.stop();
        }
    }

    fn stop(&self) {
        // The receiver is dropped when the service has ended.
        let _ = self.stop.send(());
    }

    fn receive(&self, kind: Signal, cause: Cause) {
        let mut state = self.command.lock();
        match *state {
            // The terminal has sent it to COMMAND, too. A second one would make many test runners exit without cleaning up.
            State::Running(_) if cause == Cause::Kernel && matches!(kind, Signal::INT | Signal::QUIT) => return,
            State::Running(command) => {
                // Fails only if COMMAND runs as another user.
                let _ = kill_process(command, kind);
                return;
            }
            // They change the log level of a service.
            _ if matches!(kind, Signal::USR1 | Signal::USR2) => return,
            State::Waiting => {
                let number = kind.as_raw() as u8;
                interrupt::record(number);
                *state = State::Ended(128 + number);
            }
            State::Stopping(status) => {
                *state = State::Ended(status);
                return;
            }
            State::Ended(_) => {}
        }
        self.stop();
    }

    /// Starts COMMAND, whose end stops the service. Does nothing after a signal.
    pub fn run(self: &Arc<Self>, command: &mut Command) {
        let mut state = self.command.lock();
        if let State::Waiting = *state {
            *state = self.spawn(command).map_or_else(
                |error| {
                    tell(Level::ERROR, &format!("cannot run {}: {error}", command.get_program().display()));
                    self.stop();
                    State::Ended(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
                },
                State::Running,
            );
        }
    }

    fn spawn(self: &Arc<Self>, command: &mut Command) -> io::Result<Pid> {
        let child = command.spawn()?;
        let id = Pid::from_child(&child);
        let supervisor = Arc::clone(self);
        let waiting = thread::Builder::new().name("command".into()).spawn(move || supervisor.wait(child));
        waiting.map(|_| id).inspect_err(|_| {
            let _ = kill_process(id, Signal::KILL);
        })
    }

    fn wait(&self, mut child: Child) {
        // Until the process is reaped under the lock, no other one can have its id and get its signals.
        let end = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = retry_on_intr(|| waitid(WaitId::Pid(Pid::from_child(&child)), end));
        let mut state = self.command.lock();
        *state = State::Stopping(child.wait().map_or(1, exit_status));
        self.ended.notify_all();
        self.stop();
    }

    /// Waits for COMMAND and returns its exit status. Terminates it first if the store has failed.
    pub fn finish(&self, has_failed: bool) -> ExitCode {
        let mut state = self.command.lock();
        if let (State::Running(command), true) = (*state, has_failed) {
            let _ = kill_process(command, Signal::TERM);
        }
        self.ended.wait_while(&mut state, |state| matches!(state, State::Running(_)));
        match *state {
            State::Stopping(status) | State::Ended(status) => ExitCode::from(status),
            _ => ExitCode::SUCCESS,
        }
    }
}

/// Stops the service when stdin is hung up, if it is a pipe or socket that is open now: the process at its other end has
/// ended. Never reads it.
pub fn watch_stdin(supervisor: Arc<Supervisor>) -> io::Result<()> {
    let stdin = io::stdin();
    // Node.js passes a socket where other languages pass a pipe.
    let is_pipe = matches!(FileType::from_raw_mode(fstat(&stdin)?.st_mode), FileType::Fifo | FileType::Socket);
    if is_pipe && !is_hung_up(&stdin, Some(&Timespec::default()))? {
        thread::Builder::new().name("stdin".into()).spawn(move || {
            // A stdin that cannot be polled is treated as hung up, because the store must not outlive its test.
            while matches!(is_hung_up(io::stdin(), None), Ok(false)) {}
            supervisor.hang_up();
        })?;
    }
    Ok(())
}

/// Waits until all writers have closed their end, at most `limit`.
fn is_hung_up(stdin: impl AsFd, limit: Option<&Timespec>) -> io::Result<bool> {
    // Data does not end the wait, because only a hang-up is asked for.
    let mut polled = [PollFd::new(&stdin, PollFlags::RDHUP)];
    retry_on_intr(|| poll(&mut polled, limit))?;
    Ok(polled[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR))
}

/// Returns the exit status that a shell would.
fn exit_status(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| Some(128 + status.signal()?));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(1)
}
