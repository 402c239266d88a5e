//! "A store for each test run" in docs/test-your-client.md: its programs are the files in `docs/ephemeral`, which run here as
//! the page says.

use std::path::{Path, PathBuf};

use testkit::petstore;

use crate::process::{go, run, shell, shown, tool};

const PAGE: &str = include_str!("../../docs/test-your-client.md");

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ephemeral")
}

/// Runs a command in a folder with the files, and `petstore` in the path. No store may be left.
fn succeed(command: &str) {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    for file in std::fs::read_dir(files()).unwrap().map(|file| file.unwrap().path()) {
        std::fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    std::fs::write(folder.path().join("package.json"), r#"{"type":"module"}"#).unwrap();
    std::os::unix::fs::symlink(tool("npm/node_modules"), folder.path().join("node_modules")).unwrap();
    let programs = Path::new(petstore()).parent().unwrap().display();

    let output = run(shell(&format!("PATH='{programs}':$PATH; {command}")).env("TMPDIR", &temporary), folder.path());

    assert!(output.status.success(), "{command}\n{}", shown(&output));
    let names = std::fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("petstore")).collect();
    assert!(left.is_empty(), "{command} leaves {left:?}");
}

#[test]
fn page_links_the_programs_that_are_tested() {
    for file in std::fs::read_dir(files()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()) {
        assert!(PAGE.contains(&format!("](ephemeral/{file})")), "the page does not link {file}");
    }
}

#[test]
fn pytest_fixture_starts_a_store() {
    succeed("pytest -p no:cacheprovider");
}

#[test]
fn command_runs_with_a_store() {
    succeed("petstore ephemeral -- pytest -p no:cacheprovider");
}

#[test]
fn vitest_starts_a_store() {
    succeed("tsc --strict --skipLibCheck --target es2022 --module nodenext --noEmit *.ts && vitest run");
}

#[test]
fn go_test_starts_a_store() {
    succeed(&go("test store_test.go"));
}

#[test]
fn shell_script_starts_a_store() {
    succeed("sh test.sh");
}
