//! `petstore pets`

use std::path::{Path, PathBuf};

use clap::Subcommand;
use tracing::Level;

use super::animal_file::{AnimalFile, temporary_folder};
use crate::cli::data::export;
use crate::cli::terminal::interrupt;
use crate::cli::terminal::progress::counted;
use crate::cli::{Outcome, tell, with_store};
use crate::config::Common;
use crate::domain::{Deployment, Pet};

#[derive(Subcommand, Debug)]
pub enum Pets {
    /// Import animals from newline-delimited JSON
    ///
    /// Each line is an object as in `POST /pets`, such as `{"name":"Rex","categoryId":3}`. All lines are validated before any
    /// animal is added, and all animals are added in one transaction. They get new ids: an `id`, as in an export, is ignored.
    /// Stdin is first copied into the data directory, with PostgreSQL into memory.
    ///
    /// The service may be running. Adding a million animals takes a few seconds. Meanwhile, reads continue and writes wait;
    /// a write that waits for 5 seconds gets a 503 response. With PostgreSQL, only new animals wait, in the last step, and
    /// get a 503 response after 1.4 seconds.
    #[command(after_long_help = "\
Examples:
  petstore pets import animals.ndjson
  jq -c '.[]' animals.json | petstore pets import -")]
    Import {
        /// File to import, or - for stdin
        file: PathBuf,
        /// Skip invalid lines instead of importing nothing
        #[arg(long)]
        keep_going: bool,
    },
    /// Export all animals as newline-delimited JSON
    ///
    /// Animals are sorted by id.
    ///
    /// The export is not a consistent snapshot, unlike `petstore backup`. It contains every animal that exists at its start
    /// exactly once, in the state at the time when its page of 1,000 is read, and may contain animals added meanwhile. The
    /// service is not blocked, however slowly the output is read.
    #[command(after_long_help = "\
Examples:
  petstore pets export animals.ndjson
  petstore pets export | gzip > animals.ndjson.gz")]
    Export(export::Target),
}

impl Pets {
    pub fn run(self, common: &Common) -> Outcome {
        match self {
            Self::Import { file, keep_going } => import(common, &file, keep_going),
            Self::Export(target) => with_store(common, None, async |store| {
                let count = store.count_pets().await.ok();
                target
                    .export(&common.data_dir, "animal", count, async |write| {
                        let mut write = |pet: Pet<'_>| write(&pet.to_json());
                        store.export_pets(&mut write).await
                    })
                    .await
            }),
        }
    }
}

fn import(common: &Common, file: &Path, keep_going: bool) -> Outcome {
    let mut file = AnimalFile::open(file, temporary_folder(common))?;
    // Caught only after `open`, so that a signal can end the process while `open` waits for a pipe.
    interrupt::catch()?;
    let (_, invalid) = file.check()?;
    let lines = counted(invalid, "invalid line");
    if invalid > 0 && !keep_going {
        return Err(format!("nothing was imported: {lines}; use --keep-going to skip them").into());
    }
    let (animals, new) = (file.animals(keep_going), Some(Deployment::Production));
    let added = with_store(common, new, async |store| Ok(store.import_pets(animals).await?))?;
    let added = counted(added, "animal");
    let skipped = if invalid > 0 { format!(", skipped {lines}") } else { String::new() };
    tell(Level::INFO, &format!("imported {added}{skipped}"));
    Ok(())
}
