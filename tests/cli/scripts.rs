//! Scripts of the repository: their usage, and waiting for other programs.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use testkit::{Folder, Process};

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

/// A script of the repository, with the folder first in its `PATH`.
fn script(folder: &Folder, name: &str) -> Command {
    let mut command = folder.program(format!("{REPOSITORY}/{name}"));
    let path = format!("{}:{}", folder.path("").display(), std::env::var("PATH").unwrap());
    command.env("PATH", path);
    command
}

fn write_program(folder: &Folder, name: &str, text: &str) {
    folder.write(name, format!("#!/bin/sh\n{text}"));
    std::fs::set_permissions(folder.path(name), PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn every_script_prints_its_usage() {
    let folder = Folder::new();
    write_program(&folder, "cargo", &format!("touch {}; exit 1\n", folder.path("cargo-ran").display()));
    let scripts = std::fs::read_dir(format!("{REPOSITORY}/scripts")).unwrap();
    let scripts = scripts.map(|entry| format!("scripts/{}", entry.unwrap().file_name().display()));
    for name in scripts.chain([".ci/run".to_owned()]) {
        for flag in ["--help", "-h"] {
            let help = Process::start(script(&folder, &name).arg(flag)).end();
            assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""), "{name}: {help:?}");
            assert!(help.stdout.to_lowercase().starts_with(&format!("usage: {name}")), "{name}: {help:?}");
        }
    }
    let refused = Process::start(script(&folder, ".ci/run").arg("--fast")).end().usage();
    assert!(refused.starts_with("exit 2\n.ci/run: unexpected argument `--fast`\n"), "{refused}");
    assert!(!folder.path("cargo-ran").exists(), "nothing is run");
}

/// Writes an `apt-get` that records its arguments, and whose first call fails with `error`.
fn write_apt_get(folder: &Folder, error: &str) {
    let asked = folder.path("asked");
    let asked = asked.display();
    let text =
        format!("echo \"$*\" >> {asked}\n[ $(wc -l < {asked}) -gt 1 ] || {{ echo 'E: {error}' >&2; exit 100; }}\n");
    write_program(folder, "apt-get", &text);
}

#[test]
fn package_installation_waits_for_the_locks_of_apt() {
    let folder = Folder::new();
    write_apt_get(&folder, "Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)");

    let installed = Process::start(script(&folder, "scripts/apt-install").args(["curl", "strace"])).end();

    assert_eq!(installed.code, Some(0), "{installed:?}");
    let asked = folder.read("asked");
    let [first, second, install] = asked.lines().collect::<Vec<_>>()[..] else { panic!("{asked}") };
    assert!(first.ends_with("update") && second == first, "{asked}");
    assert!(install.contains("DPkg::Lock::Timeout=300") && install.ends_with("install curl strace"), "{asked}");
}

#[test]
fn package_installation_reports_other_errors_at_once() {
    let folder = Folder::new();
    write_apt_get(&folder, "The list of sources could not be read.");

    let failed = Process::start(script(&folder, "scripts/apt-install").arg("curl")).end();

    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("The list of sources could not be read."), "{failed:?}");
    assert_eq!(folder.read("asked").lines().count(), 1);
}

#[test]
fn tests_that_hang_are_killed_and_named() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("deps")).unwrap();
    write_program(&folder, "deps/hangs", "sleep 1000\n");
    write_program(&folder, "deps/fails", "exit 7\n");
    let run = |test: &str, limit: &str| {
        Process::start(script(&folder, ".cargo/run").arg(folder.path(test)).env("TEST_LIMIT", limit)).end()
    };

    let hung = run("deps/hangs", "0.5s");
    assert_eq!(hung.code, None, "{hung:?}");
    assert!(hung.stderr.contains("limit of time") && hung.stderr.contains("\nhangs\n"), "{hung:?}");
    assert_eq!(run("deps/fails", "1000s").code, Some(7));
}
