//! Input that a terminal does not show.

use std::io::{self, BufRead, IsTerminal, Write, stderr, stdin};
use std::process;

use rustix::process::Signal;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::interrupt;

/// Reads a line. Prints `prompt` if stdin is a terminal, which then does not show what is typed.
pub fn read_hidden(prompt: &str) -> io::Result<String> {
    let mut line = String::new();
    if !stdin().is_terminal() {
        return stdin().lock().read_line(&mut line).map(|_| line);
    }
    let shown = tcgetattr(stdin())?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    let show = move || tcsetattr(stdin(), OptionalActions::Now, &shown);
    let restore = show.clone();
    // The terminal sends these only to the foreground, whose processes may change it.
    interrupt::listen([Signal::INT, Signal::QUIT], move |signal, _| {
        let _ = restore();
        process::exit(128 + signal.as_raw())
    })?;
    tcsetattr(stdin(), OptionalActions::Now, &hidden)?;
    let _ = write!(stderr(), "{prompt}");
    let read = stdin().lock().read_line(&mut line);
    show()?;
    let _ = writeln!(stderr());
    read.map(|_| line)
}
