//! The history of commits, by their effect on what the application caches: cached values outlive commits that do not affect
//! them.

use parking_lot::RwLock;

use super::disk::wal_index::Version;

/// Effect of a write on lists that the application caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// No list contains the written rows.
    Unlisted,
    /// Rows are added after all others of their list.
    Adds,
    /// Listed rows may change.
    Any,
}

/// Numbers of commits of this process by their effect, from 0. Versions with equal numbers have equal listed rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Changes of any listed rows.
    pub changes: u64,
    /// Commits that only added rows after all others.
    pub additions: u64,
}

/// The version after the last commit of this process, and its epoch.
///
/// The effect of another process's commit is unknown. It leads to a version that is not recorded here, so what was cached
/// before is not used. The next commit of this process then begins a new epoch.
#[derive(Debug)]
pub struct History(RwLock<(Version, Epoch)>);

impl History {
    pub fn new(version: Version) -> Self {
        Self(RwLock::new((version, Epoch::default())))
    }

    /// Records a commit of this process. `before` was read inside its transaction, so no other process has committed
    /// between `before` and the commit. `after` was read after the commit.
    pub fn record(&self, before: Version, after: Version, effect: Effect) {
        if after == before {
            return;
        }
        let mut last = self.0.write();
        let (version, epoch) = &mut *last;
        let is_known = *version == before && after.is_next_of(&before);
        match effect {
            Effect::Unlisted if is_known => {}
            Effect::Adds if is_known => epoch.additions += 1,
            _ => epoch.changes += 1,
        }
        *version = after;
    }

    /// Returns the epoch of `version`. `None` if it is unknown, because another process has committed or because a commit
    /// of this process is just being recorded.
    #[inline]
    pub fn epoch(&self, version: &Version) -> Option<Epoch> {
        let last = self.0.try_read()?;
        (last.0 == *version).then_some(last.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the version after a number of commits.
    fn version(commits: u32) -> Version {
        Version(std::array::from_fn(|word| if word == 2 { commits } else { 0 }))
    }

    #[test]
    fn additions_do_not_count_as_changes() {
        let [first, second, third, fourth] = [1, 2, 3, 4].map(version);
        let history = History::new(first);
        history.record(first, second, Effect::Adds);
        assert_eq!(history.epoch(&second), Some(Epoch { changes: 0, additions: 1 }));
        history.record(second, third, Effect::Unlisted);
        assert_eq!(history.epoch(&third), Some(Epoch { changes: 0, additions: 1 }));
        history.record(third, fourth, Effect::Any);
        assert_eq!(history.epoch(&fourth), Some(Epoch { changes: 1, additions: 1 }));
        assert_eq!(history.epoch(&third), None);
    }

    #[test]
    fn commit_of_another_process_begins_an_epoch() {
        let [first, second, third, fourth] = [1, 2, 3, 4].map(version);
        let history = History::new(first);
        assert_eq!(history.epoch(&second), None, "another process has committed");
        history.record(second, third, Effect::Adds);
        assert_eq!(history.epoch(&third), Some(Epoch { changes: 1, additions: 0 }));

        let history = History::new(first);
        // The other process commits before this one reads the version that follows its own commit.
        history.record(first, third, Effect::Unlisted);
        assert_eq!(history.epoch(&third), Some(Epoch { changes: 1, additions: 0 }));
        assert_eq!(history.epoch(&fourth), None);
    }
}
