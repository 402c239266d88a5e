//! A disk in memory that a test fills up and makes read-only. No other process sees it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::{Database, Keeper, within};

const ROOMY: &str = "size=1g";

/// Returns a program that runs a command, and makes `path`, a file or folder, read-only for it.
pub fn read_only(path: &Path) -> Command {
    let mut unshare = Command::new("unshare");
    let protect = r#"mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@""#;
    unshare.args(["--map-root-user", "--mount", "sh", "-c", protect]).arg(path);
    unshare
}

/// A mount in a separate namespace, which ends with the process that keeps it.
pub struct SmallDisk {
    folder: tempfile::TempDir,
    keeper: Keeper,
}

#[expect(clippy::new_without_default, reason = "a disk is mounted, which `default` does not suggest")]
impl SmallDisk {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut unshare = Command::new("unshare");
        // A user namespace allows the mount without root privileges.
        unshare.args(["--map-root-user", "--mount", "sh", "-c"]);
        unshare.arg(r#"mount -t tmpfs -o "$2" petstore "$1" && echo && exec cat"#);
        unshare.arg("sh").arg(folder.path()).arg(ROOMY);
        let mut keeper = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let needs = "cannot mount in a user namespace: make `unshare --map-root-user --mount` work; in a container, use \
                     --security-opt seccomp=unconfined or --privileged";
        assert!(!ready.is_empty(), "{needs}");
        Self { folder, keeper: Keeper(keeper) }
    }

    /// A database on this disk.
    pub fn database(&self) -> Database {
        Database::folder(&self.store()).wrapped_by(&self.enter())
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// A file in the data directory, by its path from outside the namespace.
    pub fn file(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.0.id()));
        root.join(self.store().strip_prefix("/").unwrap()).join(name)
    }

    /// Shrinks the disk to the space in use.
    pub fn fill(&self) {
        // Fails if the used space grows before the remount.
        within(Duration::from_secs(10), "filling", || {
            let mut df = self.enter();
            df.args(["df", "--block-size=1", "--output=used"]).arg(self.folder.path());
            let shown = String::from_utf8(df.output().unwrap().stdout).unwrap();
            self.remount(&format!("size={}", shown.split_whitespace().last().unwrap()))
        });
    }

    pub fn free(&self) {
        assert!(self.remount(ROOMY));
    }

    /// Remounts the disk. Fails while a process has a file open for writing.
    pub fn make_read_only(&self, read_only: bool) {
        assert!(self.remount(if read_only { "ro" } else { "rw" }), "the disk is in use");
    }

    fn remount(&self, options: &str) -> bool {
        let mut mount = self.enter();
        mount.args(["mount", "-o", &format!("remount,{options}")]).arg(self.folder.path());
        mount.stderr(Stdio::null()).status().unwrap().success()
    }

    /// The start of a command that runs in the namespace.
    fn enter(&self) -> Command {
        let mut nsenter = Command::new("nsenter");
        let keeper = self.keeper.0.id().to_string();
        nsenter.args(["--target", &keeper, "--user", "--mount", "--preserve-credentials", "--"]);
        nsenter
    }

    /// Copies the database and its log out of the namespace. No process may be writing.
    pub fn copy(&self) -> Database {
        let copy = Database::temporary();
        for name in ["petstore.db", "petstore.db-wal"] {
            let file = self.file(name);
            if file.exists() {
                fs::copy(file, copy.file(name)).unwrap();
            }
        }
        copy
    }
}
