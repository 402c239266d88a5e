//! Confirmation of commands that delete.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use crate::cli::Outcome;

/// Fails unless `yes` is given or the answer to `question` is yes. Without a terminal, fails and says what the command
/// `would` do.
pub fn confirm(yes: bool, question: &str, would: &str) -> Outcome {
    if yes {
        return Ok(());
    }
    if !stdin().is_terminal() {
        return Err(format!("{would}: confirm with --yes").into());
    }
    write!(stderr(), "{question} This cannot be undone. [y/N] ")?;
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err("nothing was changed".into()),
    }
}
