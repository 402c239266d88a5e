//! `petstore backup` and `petstore restore`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use indicatif::HumanBytes;
use tracing::Level;

use super::pets::Progress;
use super::{Failure, Outcome, interrupt, not_opened, tell};
use crate::app::backup_schedule::{Backups, Schedule};
use crate::config::{Common, Service};
use crate::domain::Clock;
use crate::store::Store;
use crate::store::sqlite::backup::{self, Target};

/// What PostgreSQL brings along for this.
const POSTGRES: &str = "this is for the embedded database; PostgreSQL has its own ways: see docs/operations.md";

const STDOUT: &str = "a backup cannot go to stdout, because it is checked before it gets its name: name a file \
    (./- for one that is called -)";

/// Copy the embedded database into a file, also while the service is running
///
/// The copy is of one moment and has every write that was answered before it began. It is checked, and gets its name
/// when all of it is on the disk: there is never half a backup under that name.
#[derive(Args, Debug)]
pub struct Backup {
    /// The file to make
    file: PathBuf,
    /// Replace the file if there is one; a link or a device is never replaced
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    common: Common,
}

/// Put a backup in the place of the embedded database, while no service is running on it
///
/// The backup is copied and checked first. Ids, keys and messages are as they were; what came after the backup is gone.
/// Keys that were revoked since work again; nobody is signed in.
#[derive(Args, Debug)]
pub struct Restore {
    /// A file that `petstore backup` has made
    file: PathBuf,
    /// Replace the database if there is one
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    common: Common,
}

impl Backup {
    pub fn run(self) -> Outcome {
        refuse_postgres(&self.common)?;
        if self.file == Path::new("-") {
            return Err(Failure(STDOUT.into()));
        }
        interrupt::catch()?;
        let target = Target { file: &self.file, replace: self.force };
        let Common { data_dir, deployment, .. } = &self.common;
        let (made, stopped) =
            with_bar("backing up", |progress| backup::back_up(data_dir, *deployment, target, progress));
        let made = made.map_err(|error| match stopped {
            true => Failure(format!("interrupted: nothing was written to {}", self.file.display())),
            false => not_opened(&self.common, error),
        })?;
        tell(Level::INFO, &format!("backed up {} to {}", HumanBytes(made.bytes), self.file.display()));
        Ok(())
    }
}

impl Restore {
    pub fn run(self) -> Outcome {
        refuse_postgres(&self.common)?;
        interrupt::catch()?;
        let Common { data_dir, deployment, .. } = &self.common;
        let (restored, stopped) =
            with_bar("restoring", |progress| backup::restore(&self.file, data_dir, *deployment, self.force, progress));
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

/// Refuses a schedule of backups where there can be none.
pub fn check(service: &Service, common: &Common) -> Outcome {
    if service.backup_every.is_some() { refuse_postgres(common) } else { Ok(()) }
}

/// Begins to make backups, where the service is told to.
pub fn start(service: &Service, store: &Arc<Store>) -> std::io::Result<Option<Backups>> {
    let (Some(every), Store::Sqlite(database)) = (service.backup_every, &**store) else { return Ok(None) };
    let folder = service.backup_dir.clone().unwrap_or_else(|| database.data_dir().join("backups"));
    let schedule = Schedule { every, keep: service.backup_keep as usize, folder };
    Backups::start(schedule, Arc::clone(store), Clock::System).map(Some)
}

/// Runs `copy` with a progress bar on a terminal. Also returns whether a signal stopped the copy.
fn with_bar<T>(what: &'static str, copy: impl FnOnce(backup::Progress<'_>) -> T) -> (T, bool) {
    let mut stopped = false;
    let bar = Progress::new(0, what, "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}{left}").0;
    let copied = copy(&mut |done, of| {
        bar.set_length(of);
        bar.set_position(done);
        stopped = interrupt::is_received();
        !stopped
    });
    bar.finish_and_clear();
    (copied, stopped)
}
