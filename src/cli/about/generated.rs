//! `petstore completions` and `petstore manual`, which clap generates.

use std::path::PathBuf;
use std::{fs, io};

use clap::{Arg, Args, Command, ValueHint};
use clap_complete::Shell;

use crate::cli::{Outcome, command, print};

/// Print a shell completion script
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example:
  petstore completions bash > ~/.local/share/bash-completion/completions/petstore")]
pub struct Completions {
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut hinted(command()), "petstore", &mut script);
        print(&String::from_utf8(script)?)
    }
}

/// Says which values are files or folders.
fn hinted(command: Command) -> Command {
    let hint = |arg: Arg| match arg.get_value_names() {
        Some([name]) if name == "FILE" => arg.value_hint(ValueHint::FilePath),
        Some([name]) if name == "DIR" || name == "FOLDER" => arg.value_hint(ValueHint::DirPath),
        Some([_]) if arg.get_action().takes_values() => arg.value_hint(ValueHint::Other),
        _ => arg,
    };
    command.mut_args(hint).mut_subcommands(hinted)
}

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
    pub fn run(self) -> Outcome {
        self.write()
            .map_err(|error| format!("cannot write the manual pages to {}: {error}", self.folder.display()).into())
    }

    fn write(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let pages = tempfile::tempdir_in(&self.folder)?;
        clap_mangen::generate_to(command(), &pages)?;
        for page in fs::read_dir(&pages)? {
            let page = page?;
            // Replaces a link. Writing to it would replace the content of another file, perhaps of a database.
            fs::rename(page.path(), self.folder.join(page.file_name()))?;
        }
        Ok(())
    }
}
