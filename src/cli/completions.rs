//! `petstore completions SHELL`

use clap::Args;
use clap_complete::Shell;

use super::{Outcome, print};

/// Print a completion script for a shell
#[derive(Args, Debug)]
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
