//! A disk that a test has for itself, in memory: it is made full and read-only at will, and nobody else sees it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::{Database, within};

const ROOMY: &str = "size=1g";

/// Lives in a namespace of mounts, which a process holds and which is gone with it.
pub struct SmallDisk {
    folder: tempfile::TempDir,
    keeper: Child,
}

impl SmallDisk {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut unshare = Command::new("unshare");
        // In a namespace of users, too, so that this takes no more rights than whoever tests has.
        unshare.args([
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            r#"mount -t tmpfs -o "$2" petstore "$1" && echo && exec cat"#,
        ]);
        unshare.arg("sh").arg(folder.path()).arg(ROOMY);
        let mut keeper = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let needs = "a test needs a disk of its own: the right to mount in a namespace of users (`unshare --map-root-user \
                     --mount` must work; in a container, --security-opt seccomp=unconfined or --privileged)";
        assert!(!ready.is_empty(), "{needs}");
        Self { folder, keeper }
    }

    /// A database on this disk.
    pub fn database(&self) -> Database {
        Database::folder(&self.store()).wrapped_by(&self.enter())
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// A file beside the database, as it is called from outside.
    pub fn file(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(self.store().strip_prefix("/").unwrap()).join(name)
    }

    /// Leaves no room for anything but what is there.
    pub fn fill(&self) {
        // What is written meanwhile is in the way of the exact size.
        within(std::time::Duration::from_secs(10), "filling", || {
            let mut df = self.enter();
            df.args(["df", "--block-size=1", "--output=used"]).arg(self.folder.path());
            let shown = String::from_utf8(df.output().unwrap().stdout).unwrap();
            self.remount(&format!("size={}", shown.split_whitespace().last().unwrap()))
        });
    }

    pub fn free(&self) {
        assert!(self.remount(ROOMY));
    }

    /// Only while nobody has a file open for writing, as everywhere.
    pub fn make_read_only(&self, read_only: bool) {
        assert!(self.remount(if read_only { "ro" } else { "rw" }), "the disk is in use");
    }

    fn remount(&self, options: &str) -> bool {
        let mut mount = self.enter();
        mount.args(["mount", "-o", &format!("remount,{options}")]).arg(self.folder.path());
        mount.stderr(Stdio::null()).status().unwrap().success()
    }

    /// The beginning of a command that sees the disk.
    fn enter(&self) -> Command {
        let mut nsenter = Command::new("nsenter");
        let keeper = self.keeper.id().to_string();
        nsenter.args(["--target", &keeper, "--user", "--mount", "--preserve-credentials", "--"]);
        nsenter
    }

    /// A copy of the database, log included, that anybody can open. Nobody may be writing.
    pub fn copy(&self, into: &Path) {
        for name in ["petstore.db", "petstore.db-wal"] {
            let file = self.file(name);
            if file.exists() {
                fs::copy(file, into.join(name)).unwrap();
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
