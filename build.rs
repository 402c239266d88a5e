//! Names the commit of a checkout in `--version`.

use std::path::Path;
use std::process::Command;

fn main() {
    // A source archive has no commit, also if it lies in another project's checkout.
    let commit =
        Path::new(".git").exists().then(|| git(&["describe", "--always", "--exclude=*", "--abbrev=12", "--dirty"]));
    println!("cargo::rustc-env=COMMIT={}", commit.flatten().as_deref().unwrap_or("unknown commit"));
    // A change of these compiles the program anyway. After a commit, a debug build that is up to date still names the commit
    // before it, with `-dirty`, because compiling everything again takes a minute.
    for path in ["build.rs", "Cargo.toml", "Cargo.lock", "assets", "migrations", "src", "templates"] {
        println!("cargo::rerun-if-changed={path}");
    }
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        // Each change of the commit adds a line to it.
        let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists());
        log.iter().for_each(|log| println!("cargo::rerun-if-changed={log}"));
    }
}

/// Returns what git prints. `None` if it is missing or fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
