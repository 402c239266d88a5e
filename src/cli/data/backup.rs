//! `petstore backup` and `petstore restore`

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::HumanBytes;
use tracing::Level;

use crate::cli::terminal::interrupt;
use crate::cli::terminal::progress::{self, BYTES};
use crate::cli::{Failure, Outcome, actor, not_opened, tell};
use crate::config::{Common, ServiceSettings};
use crate::store::sqlite::backup::{self, Target};

const POSTGRES: &str = "petstore backs up only the embedded database; for PostgreSQL, see docs/backup.md";

const STDOUT: &str =
    "cannot write a backup to stdout, because it is verified first: name a file (./- for a file named -)";

/// Back up the embedded database to a file
///
/// The service may be running. The backup is a consistent snapshot with every write acknowledged before it started. It
/// is verified, and the file appears under its name only when it is complete and on disk.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example:
  petstore backup --data-dir /var/lib/petstore /var/backups/petstore.db")]
pub struct Backup {
    /// File to create
    file: PathBuf,
    /// Replace an existing file; links and devices are never replaced
    #[arg(long)]
    force: bool,
}

/// Restore the embedded database from a backup
///
/// Stop the service first. The backup is copied and verified before it replaces the database. All changes since the
/// backup are lost: API keys revoked since then work again. All console sessions end.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example:
  petstore restore --data-dir /var/lib/petstore --force /var/backups/petstore.db")]
pub struct Restore {
    /// Backup created by `petstore backup`
    file: PathBuf,
    /// Replace an existing database
    #[arg(long)]
    force: bool,
}

impl Backup {
    pub fn run(self, common: &Common) -> Outcome {
        refuse_postgres(common)?;
        if self.file == Path::new("-") {
            return Err(Failure(STDOUT.into()));
        }
        interrupt::catch()?;
        let target = Target { file: &self.file, replace: self.force };
        let Common { data_dir, deployment, .. } = common;
        let (made, stopped) =
            with_bar("backing up", |progress| backup::back_up(data_dir, *deployment, target, progress));
        let made = made.map_err(|error| match stopped {
            true => Failure(format!("interrupted: nothing was written to {}", self.file.display())),
            false => not_opened(common, error),
        })?;
        tell(Level::INFO, &format!("backed up {} to {}", HumanBytes(made.bytes), self.file.display()));
        Ok(())
    }
}

impl Restore {
    pub fn run(self, common: &Common) -> Outcome {
        refuse_postgres(common)?;
        interrupt::catch()?;
        let Common { data_dir, deployment, .. } = common;
        let (restored, stopped) = with_bar("restoring", |progress| {
            backup::restore(&self.file, data_dir, *deployment, self.force, &actor(), progress)
        });
        let restored = restored.map_err(|error| match stopped {
            true => Failure(format!("interrupted: nothing was restored to {}", data_dir.display())),
            false => error.into(),
        })?;
        let (size, deployment, dir) = (HumanBytes(restored.bytes), restored.deployment, data_dir.display());
        tell(Level::INFO, &format!("restored {size}, a {deployment} database, to {dir}"));
        Ok(())
    }
}

fn refuse_postgres(common: &Common) -> Outcome {
    if common.database_url.is_some() { Err(Failure(POSTGRES.into())) } else { Ok(()) }
}

/// Rejects scheduled backups of PostgreSQL.
pub fn check(service: &ServiceSettings, common: &Common) -> Outcome {
    if service.backup_every.is_some() { refuse_postgres(common) } else { Ok(()) }
}

/// Runs `copy` with a progress bar on a terminal. Also returns whether a signal stopped the copy.
fn with_bar<T>(what: &'static str, copy: impl FnOnce(backup::Progress<'_>) -> T) -> (T, bool) {
    let mut stopped = false;
    let bar = progress::bar(0, what, BYTES);
    let copied = copy(&mut |done, of| {
        bar.set_length(of);
        bar.set_position(done);
        stopped = interrupt::is_received();
        !stopped
    });
    bar.finish_and_clear();
    (copied, stopped)
}
