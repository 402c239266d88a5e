//! `petstore reset`

use clap::Args;
use tracing::Level;

use super::animal_file::temporary_folder;
use super::first_animals::FirstAnimals;
use crate::cli::terminal::confirm::confirm;
use crate::cli::terminal::interrupt;
use crate::cli::terminal::progress::counted;
use crate::cli::{Outcome, actor, tell, with_store};
use crate::config::Common;
use crate::store::{Contents, StoreError};

/// Give a staging store a first state
///
/// Deletes all orders, messages and stored responses, and replaces all animals by 30 sample animals. Ids start at 1
/// again. Accounts, API keys and console sessions stay. On a terminal, asks for confirmation; elsewhere, needs --yes. Fails
/// on a production store.
///
/// The store changes as a whole or not at all. Services may be running, and show the new state once the command has ended.
/// While a large FILE is written, which takes seconds for a million animals, writes wait and may get a 503 response. With
/// PostgreSQL, reads may too.
///
/// With PostgreSQL, the role must own the tables. If they are in use for 30 seconds, for instance by a dump, the command
/// fails and changes nothing.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  petstore reset --yes
  petstore reset --pets animals.ndjson")]
pub struct Reset {
    #[command(flatten)]
    animals: FirstAnimals,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl Reset {
    pub fn run(self, common: &Common) -> Outcome {
        let animals = self.animals.open(temporary_folder(common))?;
        let target = match &common.database_url {
            Some(url) => url.to_string(),
            None => common.data_dir.display().to_string(),
        };
        with_store(common, None, async |store| {
            let contents = store.before_reset().await.map(|contents| describe(&contents));
            let deleted = match contents {
                // The rows of a large store are not counted in time. `reset` finds every other reason to fail.
                Err(_) if self.yes => "all rows".into(),
                contents => contents?,
            };
            let question = format!("Reset {target} and delete {deleted}? Accounts, keys and sessions stay.");
            confirm(self.yes, &question, &format!("reset would delete {deleted} of {target}"))?;
            // Caught only now, so that a signal can end the process while it asks.
            interrupt::catch()?;
            let added = store.reset(animals, actor(), interrupt::is_received).await.map_err(|error| match error {
                StoreError::Refused(_) if interrupt::is_received() => "interrupted: nothing was changed".to_owned(),
                error => error.to_string(),
            })?;
            tell(Level::INFO, &format!("reset {target}: deleted {deleted}; added {}", counted(added, "animal")));
            Ok(())
        })
    }
}

fn describe(contents: &Contents) -> String {
    let Contents { animals, orders, messages, responses } = *contents;
    let (animals, orders) = (counted(animals, "animal"), counted(orders, "order"));
    let (messages, responses) = (counted(messages, "message"), counted(responses, "stored response"));
    format!("{animals}, {orders}, {messages} and {responses}")
}
