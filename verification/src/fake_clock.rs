//! A system clock that a test sets for one process, by libfaketime. The monotonic clock stays real.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Database, Server};

pub struct FakeClock {
    folder: tempfile::TempDir,
}

#[expect(clippy::new_without_default, reason = "a file is made on disk, which `default` does not suggest")]
impl FakeClock {
    /// A clock that shows the real time.
    pub fn new() -> Self {
        let clock = Self { folder: tempfile::tempdir().unwrap() };
        clock.set("+0");
        clock
    }

    /// Sets the clock of every process started with it: `+2d` is two days ahead, `@1969-06-01 00:00:00` is that time.
    pub fn set(&self, time: &str) {
        // Written under another name first, because a process must never read half of it.
        let new = self.folder.path().join("new");
        std::fs::write(&new, time).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    /// `petstore serve` on free ports, under this clock.
    pub fn command(&self, database: &Database) -> Command {
        let mut command = database.serve_command("");
        self.preload(&mut command);
        command
    }

    /// Sets the clock of a command.
    pub fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", library()).env("FAKETIME_TIMESTAMP_FILE", self.file());
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    pub fn serve(&self, database: &Database) -> Server {
        Server::start(self.command(database))
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("time")
    }
}

impl Drop for FakeClock {
    /// Removes what libfaketime leaves behind when its process is killed.
    fn drop(&mut self) {
        for file in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let is_ended = |process| !Path::new("/proc").join(process).exists();
            if name.contains("faketime_") && name.rsplit('_').next().is_some_and(is_ended) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

/// The variant for multi-threaded programs. Its folder depends on the architecture.
fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    libraries.find(|library| library.exists()).expect("faketime is not installed: run scripts/test, which installs it")
}
