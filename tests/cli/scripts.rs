//! Scripts of the repository.

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

#[test]
fn every_script_prints_its_usage() {
    let folder = Folder::new();
    folder.write_program("cargo", &format!("touch {}; exit 1", folder.path("cargo-ran").display()));
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
