//! Scheduled backups, made by the service itself. Files are named after their time; the oldest are removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::api::BackupStatus;
use crate::config::Keep;
use crate::domain::Timestamp;
use crate::runtime::clock::Clock;
use crate::store::sqlite::backup::Target;
use crate::store::sqlite::make_folder;
use crate::store::{Store, StoreError};

/// Pause before a failed backup is retried, if the schedule is not sooner.
const RETRY: Duration = Duration::from_secs(60);

/// Maximum time to wait for a copy to stop at the end of the process.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// When and where backups are made.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub every: Duration,
    pub keep: Keep,
    pub folder: PathBuf,
}

/// The running schedule. It has its own thread, because a copy takes long.
#[derive(Debug)]
pub struct Backups {
    stop: mpsc::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Backups {
    pub fn start(schedule: Schedule, store: Arc<Store>, status: Arc<BackupStatus>) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        thread::Builder::new().name("backups".into()).spawn(move || {
            if let Store::Sqlite(database) = &*store {
                // The schedule continues from the last backup of an earlier process, whose clock may have been ahead.
                let made = made(&schedule.folder).unwrap_or_default();
                if let Some((at, newest)) = made.into_iter().rfind(|(at, _)| *at <= Clock::System.now()) {
                    *status.newest.lock() = Some((at, newest.metadata().map_or(0, |file| file.len())));
                }
                follow(&schedule, &status, &Clock::System, &stopped, &mut |file, going_on| {
                    database.back_up(Target { file, replace: false }, going_on)
                });
            }
            drop(store);
            // Fails if nobody waits.
            let _ = end.send(());
        })?;
        Ok(Self { stop, ended })
    }

    /// Stops the schedule. Aborts a running backup, which leaves no file.
    pub async fn stop(self) {
        drop(self.stop);
        // After the timeout the process ends anyway. The next backup removes the unfinished file.
        let _ = tokio::time::timeout(STOP_TIMEOUT, self.ended).await;
    }
}

/// Backs up to a file, and returns the number of bytes. Calls its argument to ask whether to continue.
type BackUp<'a> = &'a mut dyn FnMut(&Path, &mut dyn FnMut(u64, u64) -> bool) -> Result<u64, StoreError>;

fn follow(schedule: &Schedule, status: &BackupStatus, clock: &Clock, stopped: &Receiver<()>, back_up: BackUp<'_>) {
    let wait_after = |last: Timestamp| {
        let next = last.plus(schedule.every).as_milliseconds();
        let wait = u64::try_from(next.saturating_sub(clock.now().as_milliseconds())).unwrap_or(0);
        // Bounded by the schedule, because the clock may have been set back.
        Duration::from_millis(wait).min(schedule.every)
    };
    let mut wait = status.newest.lock().map_or(Duration::ZERO, |(at, _)| wait_after(at));
    while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        let now = clock.now();
        let file = schedule.folder.join(name(now));
        let made = make_folder(&schedule.folder)
            .map_err(|error| StoreError::Unavailable(format!("{}: {error}", schedule.folder.display())))
            .and_then(|()| back_up(&file, &mut |_, _| !is_stopped(stopped)));
        wait = match made {
            Ok(bytes) => {
                *status.newest.lock() = Some((now, bytes));
                tracing::info!(file = %file.display(), bytes, "backed up");
                if let Err(error) = remove_oldest(schedule, &file, now) {
                    tracing::error!(%error, folder = %schedule.folder.display(), "cannot remove an old backup");
                }
                wait_after(now)
            }
            Err(_) if is_stopped(stopped) => return,
            Err(error) => {
                status.failures.increment();
                tracing::error!(%error, "backup failed");
                RETRY.min(schedule.every)
            }
        };
    }
}

fn is_stopped(stopped: &Receiver<()>) -> bool {
    stopped.try_recv() == Err(TryRecvError::Disconnected)
}

/// Removes the oldest backups beyond those to keep. Never removes the one just made.
///
/// # Errors
///
/// Returns the first error after trying to remove all of them.
fn remove_oldest(schedule: &Schedule, just_made: &Path, now: Timestamp) -> io::Result<()> {
    let mut others: Vec<_> = made(&schedule.folder)?.into_iter().filter(|(_, file)| file != just_made).collect();
    // Later times are from before the clock was set back.
    others.sort_by_key(|(_, file)| file.as_path() < just_made);
    match schedule.keep {
        Keep::Newest(number) => others.truncate((others.len() + 1).saturating_sub(number)),
        Keep::For(age) => {
            // If the clock was set ahead, or backups failed for long, the age counts from the last one.
            let last = others.iter().map(|(at, _)| *at).filter(|at| *at <= now).max();
            let from = last.map_or(now, |last| now.min(last.plus(schedule.every * 2)));
            others.retain(|(at, _)| *at < from.minus(age));
        }
    }
    others.iter().map(|(_, file)| remove(file)).fold(Ok(()), io::Result::and)
}

fn remove(file: &Path) -> io::Result<()> {
    fs::remove_file(file).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
}

/// Returns the backups in a folder by their names, oldest first. Ignores other files.
fn made(folder: &Path) -> io::Result<Vec<(Timestamp, PathBuf)>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let made = entries.iter().filter_map(|entry| Some((time_of(entry.file_name().to_str()?)?, entry.path())));
    let mut made: Vec<_> = made.collect();
    made.sort();
    Ok(made)
}

/// Returns a name such as `petstore-20261121T093000Z.db`. Names sort by time and are valid on every file system.
fn name(at: Timestamp) -> String {
    let seconds: String =
        at.to_string().chars().take_while(|c| *c != '.').filter(char::is_ascii_alphanumeric).collect();
    format!("petstore-{seconds}Z.db")
}

fn time_of(name_of_file: &str) -> Option<Timestamp> {
    let time = name_of_file.strip_prefix("petstore-")?.strip_suffix(".db")?;
    let at = Timestamp::parse(time)?;
    (name(at) == name_of_file).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_have_a_time() {
        let at = Timestamp::from_milliseconds(1_795_253_400_000);
        assert_eq!(name(at), "petstore-20261121T093000Z.db");
        assert_eq!(time_of(&name(at)), Some(at));
        for other in ["petstore-.db", "petstore-20261121T093000Z.db-wal", "petstore-2026-11-21T09:30:00Z.db", "x"] {
            assert_eq!(time_of(other), None, "{other}");
        }
    }

    #[test]
    fn newest_backup_is_kept_when_the_clock_jumps() {
        let folder = tempfile::tempdir().unwrap();
        let schedule =
            Schedule { every: Duration::from_millis(1), keep: Keep::Newest(2), folder: folder.path().to_owned() };
        let (clock, status) = (Clock::fixed(Timestamp::from_milliseconds(1_795_253_400_000)), BackupStatus::default());
        let (stop, stopped) = mpsc::channel();
        let mut stop = Some(stop);
        let mut attempts = 0;
        let mut names = Vec::new();
        follow(&schedule, &status, &clock, &stopped, &mut |file, going_on| {
            attempts += 1;
            // Each hour by the clock, then a day back. Every second attempt fails.
            clock.set(clock.now().plus(Duration::from_secs(3_600)));
            if attempts == 3 {
                clock.set(clock.now().minus(Duration::from_secs(86_400)));
            }
            if attempts == 9 {
                stop = None;
            }
            if !going_on(0, 1) {
                return Err(StoreError::Unavailable("stopped".into()));
            }
            if attempts % 2 == 0 {
                return Err(StoreError::Failed("no".into()));
            }
            fs::write(file, "good").unwrap();
            names.push(file.to_owned());
            Ok(4)
        });
        assert_eq!((attempts, status.failures.get(), status.newest.lock().map(|(_, bytes)| bytes)), (9, 4, Some(4)));
        let mut made_last = names.split_off(names.len() - 2);
        made_last.sort();
        assert_eq!(files(folder.path()), made_last);
    }

    #[test]
    fn old_backups_are_removed_even_if_one_cannot_be() {
        let folder = tempfile::tempdir().unwrap();
        let of = |keep| Schedule { every: Duration::from_secs(86_400), keep, folder: folder.path().to_owned() };
        let file = |day| folder.path().join(format!("petstore-202001{day:02}T000000Z.db"));
        fs::create_dir(file(1)).unwrap();
        (2..=6).for_each(|day| fs::write(file(day), "good").unwrap());
        // The 7th of January 2020.
        let now = Timestamp::from_milliseconds(1_578_355_200_000);

        remove_oldest(&of(Keep::Newest(3)), &file(6), now).unwrap_err();
        assert_eq!(files(folder.path()), [1, 4, 5, 6].map(file));
        remove_oldest(&of(Keep::For(Duration::from_secs(2 * 86_400))), &file(6), now).unwrap_err();
        assert_eq!(files(folder.path()), [1, 5, 6].map(file));
        let ahead = now.plus(Duration::from_secs(365 * 86_400));
        remove_oldest(&of(Keep::For(Duration::from_secs(5 * 86_400))), &file(6), ahead).unwrap_err();
        assert_eq!(files(folder.path()), [1, 5, 6].map(file), "the clock was set ahead");
        remove_oldest(&of(Keep::For(Duration::ZERO)), &file(6), now).unwrap_err();
        assert_eq!(files(folder.path()), [1, 6].map(file), "the one just made is kept");
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        made(folder).unwrap().into_iter().map(|(_, file)| file).collect()
    }
}
