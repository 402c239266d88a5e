//! Confirmation of commands that delete.

use std::io::{self, BufRead, IsTerminal, Write, stderr, stdin};

use crate::cli::{Failure, Outcome};

/// Fails unless the answer to `question` is yes. Without a terminal, fails and says what the command `would` do.
pub fn confirm(question: &str, would: &str) -> Outcome {
    match confirms(question)? {
        Some(true) => Ok(()),
        Some(false) => Err(Failure("nothing was changed".into())),
        None => Err(Failure(format!("{would}: confirm with --yes"))),
    }
}

/// Asks `question` on a terminal and returns whether the answer is yes. `None` if stdin is not a terminal.
pub fn confirms(question: &str) -> io::Result<Option<bool>> {
    if !stdin().is_terminal() {
        return Ok(None);
    }
    write!(stderr(), "{question} This cannot be undone. [y/N] ")?;
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    Ok(Some(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")))
}
