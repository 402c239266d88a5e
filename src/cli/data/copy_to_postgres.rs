//! `petstore move`

use clap::Args;
use tracing::Level;

use crate::cli::runtime::{block_on, runtime};
use crate::cli::terminal::progress::{self, counted};
use crate::cli::{Outcome, actor, not_opened, tell};
use crate::config::Common;
use crate::store::copy_to_postgres;
use crate::store::sqlite::{self, Sqlite};

/// Copy the embedded database to an empty PostgreSQL database
///
/// Copies from --data-dir to --database-url. Set PETSTORE_DATABASE_URL if the URL has a password: other users of the
/// machine can read flags.
///
/// Stop the service first. If it is running, its writes fail during the copy, and its later writes are not copied.
///
/// All data is copied with its ids in one transaction, and verified before the commit. API keys keep working. The
/// embedded database is not changed.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example:
  PETSTORE_DATABASE_URL=postgres://petstore:secret@db1/petstore petstore move --data-dir /var/lib/petstore")]
pub struct Move;

impl Move {
    pub fn run(self, common: &Common) -> Outcome {
        let Some(to) = &common.database_url else {
            return Err("set --database-url to the PostgreSQL database to copy to".into());
        };
        if sqlite::folder(&common.data_dir).is_in_use() {
            tell(Level::WARN, "another process has the embedded database open: its later writes are not copied");
        }
        let options =
            sqlite::Options { deployment: common.deployment, create: None, ..sqlite::Options::new(&common.data_dir) };
        let embedded = Common { database_url: None, ..common.clone() };
        let from = Sqlite::open(&options).map_err(|error| not_opened(&embedded, error))?;
        let show = progress::of_copy("moving", "{msg} {wide_bar} {percent}%{left}");
        let moved = block_on(runtime()?, async {
            let moved = copy_to_postgres::copy(&from, to, &actor(), show).await;
            from.close().await;
            moved
        });
        let moved = moved.map_err(|error| format!("{to}: {error}"))?;
        let tables = moved.iter().map(|(table, rows)| {
            let one = match *table {
                "pets" => "animal",
                "api_keys" => "key",
                "idempotency_records" => "stored response",
                "audit" => "audit row",
                table => table.trim_end_matches('s'),
            };
            counted(*rows, one)
        });
        tell(Level::INFO, &format!("moved {} to {to}", tables.collect::<Vec<_>>().join(", ")));
        let (left, why) = (common.data_dir.display(), "so that it is not served by mistake");
        tell(Level::INFO, &format!("the store in {left} is unchanged; move it away, {why}"));
        Ok(())
    }
}
