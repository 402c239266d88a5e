//! Backup and restore of petstore's database.

use std::path::Path;

use rusqlite::Connection;
pub use sqlite_group_commit::{Progress, Target};

use super::schema::PetstoreSchema;
use super::{Sqlite, folder};
use crate::domain::{Action, Actor, Deployment};
use crate::store::Result;
use crate::store::audit::of_path;
use crate::store::transaction::{Transaction, at_once};

/// Content of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    pub deployment: Deployment,
    pub bytes: u64,
}

impl Sqlite {
    /// Copies the database while it is in use. Blocks until the copy is complete.
    pub fn back_up(&self, target: Target<'_>, progress: Progress<'_>) -> Result<Copied> {
        copied(None, |schema| self.db.back_up(target, schema, progress))
    }
}

/// Copies the database of a data directory, even while a service uses it. An older schema is copied unchanged, so that a
/// newer program can make the backup before an upgrade.
pub fn back_up(
    data_dir: &Path,
    deployment: Option<Deployment>,
    target: Target<'_>,
    progress: Progress<'_>,
) -> Result<Copied> {
    copied(deployment, |schema| sqlite_group_commit::back_up_unmigrated(&folder(data_dir), target, schema, progress))
}

/// Replaces a data directory's database by a backup, and records that. Fails if another process has the database open. If
/// the process fails or is killed, the directory holds the old database or the new one, whole.
pub fn restore(
    backup: &Path,
    data_dir: &Path,
    deployment: Option<Deployment>,
    replace: bool,
    actor: &Actor,
    progress: Progress<'_>,
) -> Result<Copied> {
    let before_publish = |restored: &Connection| {
        end_sessions_and_links(restored)?;
        Ok(at_once(restored.record(actor, Action::RestoreStore, &of_path(backup)))?)
    };
    copied(deployment, |schema| {
        sqlite_group_commit::restore(backup, &folder(data_dir), schema, replace, before_publish, progress)
    })
}

fn copied(
    deployment: Option<Deployment>,
    copy: impl FnOnce(&PetstoreSchema) -> sqlite_group_commit::Result<u64>,
) -> Result<Copied> {
    let schema = PetstoreSchema::new(deployment, None);
    let bytes = copy(&schema)?;
    Ok(Copied { deployment: schema.found().0, bytes })
}

/// Deletes all sessions and links. Otherwise those that were ended since the backup, perhaps because they were stolen, would
/// be valid again.
fn end_sessions_and_links(restored: &Connection) -> Result<()> {
    restored.execute("DELETE FROM sessions", [])?;
    // Backups of earlier versions have no links.
    if restored.column_exists(None, "accounts", "link_hash")? {
        restored.execute("UPDATE accounts SET link_hash = NULL WHERE link_hash IS NOT NULL", [])?;
    }
    Ok(())
}
