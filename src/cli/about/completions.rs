//! `petstore completions`

use clap::Args;
use clap_complete::Shell;

use crate::cli::{Outcome, print};

/// Print a shell completion script
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example:
  petstore completions bash > ~/.local/share/bash-completion/completions/petstore")]
pub struct Completions {
    shell: Shell,
}

impl Completions {
    pub fn run(self, mut command: clap::Command) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "petstore", &mut script);
        print(&String::from_utf8(script)?)
    }
}
