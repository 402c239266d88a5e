//! `petstore backup` and `petstore restore`

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process;

use clap::Args;
use indicatif::HumanBytes;
use tracing::Level;

use crate::cli::terminal::interrupt;
use crate::cli::terminal::progress::{self, BYTES};
use crate::cli::{Outcome, actor, not_opened, tell};
use crate::config::{Common, ServiceSettings};
use crate::store::sqlite::backup::{self, Target};

/// Bytes that are written to stdout between two looks at signals.
const CHUNK: u64 = 1 << 20;

const POSTGRES: &str = "petstore backs up only the embedded database; for PostgreSQL, see docs/backup.md";

/// Back up the embedded database to a file
///
/// The service may be running. The backup is a consistent snapshot with every write acknowledged before it started. It
/// is verified, and the file appears under its name only when it is complete and on disk. A backup to stdout is first made
/// and verified in the data directory.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  petstore backup --data-dir /var/lib/petstore /var/backups/petstore.db
  petstore backup --data-dir /var/lib/petstore - > /mnt/petstore.part && mv /mnt/petstore.part /mnt/petstore.db")]
pub struct Backup {
    /// File to create, or - for stdout
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
        let Common { data_dir, deployment, .. } = common;
        interrupt::catch()?;
        let to_stdout = self.file == Path::new("-");
        if to_stdout && io::stdout().is_terminal() {
            return Err("stdout is a terminal: redirect it, or name a file (./- for a file named -)".into());
        }
        let copy = data_dir.join(format!("petstore-backup-{}", process::id()));
        let file = if to_stdout { &copy } else { &self.file };
        let target = Target { file, replace: self.force || to_stdout };
        let made = with_bar("backing up", |progress| backup::back_up(data_dir, *deployment, target, progress));
        let bytes = made.map_err(|error| match interrupt::is_received() {
            true => format!("interrupted: nothing was written to {}", self.file.display()),
            false => not_opened(common, error),
        })?;
        if to_stdout {
            let (mut copy, mut out) = (File::open(file)?, io::stdout().lock());
            fs::remove_file(file)?;
            while io::copy(&mut (&mut copy).take(CHUNK), &mut out)? > 0 {
                if interrupt::is_received() {
                    return Err("interrupted: the backup is not complete".into());
                }
            }
            out.flush()?;
        }
        tell(Level::INFO, &format!("backed up {} to {}", HumanBytes(bytes), self.file.display()));
        Ok(())
    }
}

impl Restore {
    pub fn run(self, common: &Common) -> Outcome {
        refuse_postgres(common)?;
        interrupt::catch()?;
        let Common { data_dir, deployment, .. } = common;
        let restored = with_bar("restoring", |progress| {
            backup::restore(&self.file, data_dir, *deployment, self.force, &actor(), progress)
        });
        let (deployment, bytes) = restored.map_err(|error| match interrupt::is_received() {
            true => format!("interrupted: nothing was restored to {}", data_dir.display()),
            false => error.to_string(),
        })?;
        let (size, dir) = (HumanBytes(bytes), data_dir.display());
        tell(Level::INFO, &format!("restored {size}, a {deployment} database, to {dir}"));
        Ok(())
    }
}

fn refuse_postgres(common: &Common) -> Outcome {
    if common.database_url.is_some() { Err(POSTGRES.into()) } else { Ok(()) }
}

/// Rejects scheduled backups of PostgreSQL.
pub fn check(service: &ServiceSettings, common: &Common) -> Outcome {
    if service.backup_every.is_none() {
        return Ok(());
    }
    refuse_postgres(common).map_err(|why| format!("remove backup-every: {why}").into())
}

/// Runs `copy` with a progress bar on a terminal, until a signal.
fn with_bar<T>(what: &'static str, copy: impl FnOnce(backup::Progress<'_>) -> T) -> T {
    let show = progress::of_copy(what, BYTES);
    copy(&mut |done, of| {
        show(done, of);
        !interrupt::is_received()
    })
}
