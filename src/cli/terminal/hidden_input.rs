//! Input that a terminal does not show.

use std::io::{self, BufRead, IsTerminal, stdin};
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
    interrupt::listen([Signal::INT, Signal::TERM], move |signal| {
        let _ = restore();
        process::exit(128 + signal.as_raw())
    })?;
    tcsetattr(stdin(), OptionalActions::Now, &hidden)?;
    eprint!("{prompt}");
    let read = stdin().lock().read_line(&mut line);
    show()?;
    eprintln!();
    read.map(|_| line)
}
