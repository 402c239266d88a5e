//! `petstore manual`

use std::path::PathBuf;

use clap::Args;

use super::{Failure, Outcome};

/// Write the manual pages into a folder
///
/// There is one page for each command. An existing page is replaced.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example:
  petstore manual ~/.local/share/man/man1")]
pub struct Manual {
    /// Folder of the pages, created if it does not exist
    folder: PathBuf,
}

impl Manual {
    pub fn run(self, command: clap::Command) -> Outcome {
        std::fs::create_dir_all(&self.folder)
            .and_then(|()| clap_mangen::generate_to(command, &self.folder))
            .map_err(|error| Failure(format!("cannot write the manual pages to {}: {error}", self.folder.display())))
    }
}
