//! `petstore migrate`

use clap::{Args, Subcommand};

use crate::cli::{Outcome, not_opened, print, runtime, with_store};
use crate::config::Common;
use crate::domain::Deployment;
use crate::store::postgres::Postgres;
use crate::store::sqlite::Sqlite;

/// Migrate the database to the current schema
///
/// All other commands do this automatically when they open the database.
#[derive(Args, Debug)]
pub struct Migrate {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List applied and pending migrations
    Status {
        /// Print a JSON array of objects
        #[arg(long)]
        json: bool,
    },
}

impl Migrate {
    pub fn run(self, common: &Common) -> Outcome {
        let Some(Command::Status { json }) = self.command else {
            return with_store(common, Some(Deployment::Production), async |_| Ok(()));
        };
        let migrations = match &common.database_url {
            Some(url) => runtime::block_on(runtime::runtime()?, Postgres::migration_status(url)),
            None => Sqlite::migration_status(&common.data_dir),
        };
        let migrations = migrations.map_err(|error| not_opened(common, error))?;
        if json {
            return print(&format!("{}\n", serde_json::to_string_pretty(&migrations)?));
        }
        let lines = migrations.iter().map(|migration| {
            format!("{:8} {}\n", if migration.applied { "applied" } else { "pending" }, migration.name)
        });
        print(&lines.collect::<String>())
    }
}
