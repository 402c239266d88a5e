//! `petstore backup` and `petstore restore`

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::HumanBytes;
use tempfile::TempDir;
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
        let folder = if self.file == Path::new("-") { Some(copy_folder(data_dir)?) } else { None };
        let copy = folder.as_ref().map(|folder| folder.path().join("copy"));
        let target = Target { file: copy.as_ref().unwrap_or(&self.file), replace: self.force };
        let made = with_bar("backing up", |progress| backup::back_up(data_dir, *deployment, target, progress));
        let bytes = made.map_err(|error| match interrupt::is_received() {
            true => format!("interrupted: nothing was written to {}", self.file.display()),
            false => not_opened(common, error),
        })?;
        if let Some(folder) = folder {
            let (mut copy, mut out) = (File::open(target.file)?, io::stdout().lock());
            folder.close()?;
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

/// Returns a folder for the copy that is written to stdout.
fn copy_folder(data_dir: &Path) -> Outcome<TempDir> {
    if io::stdout().is_terminal() {
        return Err("stdout is a terminal: redirect it, or name a file (./- for a file named -)".into());
    }
    let made = tempfile::Builder::new().prefix("petstore-backup-").tempdir_in(data_dir);
    Ok(made.map_err(|error| format!("{}: {error}", data_dir.display()))?)
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
