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

impl Sqlite {
    /// Copies the database while it is in use. Blocks until the copy is complete. Returns its number of bytes.
    pub fn back_up(&self, target: Target<'_>, progress: Progress<'_>) -> Result<u64> {
        Ok(self.db.back_up(target, &PetstoreSchema::new(None, None), progress)?)
    }
}

/// Copies the database of a data directory, even while a service uses it. An older schema is copied unchanged, so that a
/// newer program can make the backup before an upgrade. Returns the number of bytes.
pub fn back_up(
    data_dir: &Path,
    deployment: Option<Deployment>,
    target: Target<'_>,
    progress: Progress<'_>,
) -> Result<u64> {
    let schema = PetstoreSchema::new(deployment, None);
    Ok(sqlite_group_commit::back_up_unmigrated(&folder(data_dir), target, &schema, progress)?)
}

/// Replaces a data directory's database by a backup, and records that. Deletes all sessions and links. Fails if another
/// process has the database open. If the process fails or is killed, the directory holds the old database or the new one,
/// whole. Returns the deployment and the number of bytes.
pub fn restore(
    backup: &Path,
    data_dir: &Path,
    deployment: Option<Deployment>,
    replace: bool,
    actor: &Actor,
    progress: Progress<'_>,
) -> Result<(Deployment, u64)> {
    let schema = PetstoreSchema::new(deployment, None);
    let before_publish = |restored: &Connection| {
        // Otherwise those that were ended since the backup, perhaps because they were stolen, would be valid again.
        restored.execute("DELETE FROM sessions", [])?;
        // Backups of earlier versions have no links.
        if restored.column_exists(None, "accounts", "link_hash")? {
            restored.execute("UPDATE accounts SET link_hash = NULL WHERE link_hash IS NOT NULL", [])?;
        }
        Ok(at_once(restored.record(actor, Action::RestoreStore, &of_path(backup)))?)
    };
    let folder = folder(data_dir);
    let bytes = sqlite_group_commit::restore(backup, &folder, &schema, replace, before_publish, progress)?;
    Ok((schema.found().0, bytes))
}
