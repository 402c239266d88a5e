//! "A store for each test run" in docs/test-your-client.md: its commands install the packages in empty projects, whose tests are
//! the files in `docs/ephemeral`.

use std::collections::HashSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use testkit::{Folder, Process, TIMEOUT, petstore, within};

use crate::process::{go, run, shell, shown, tool};

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");
const PAGE: &str = include_str!("../../docs/test-your-client.md");
const README: &str = include_str!("../../README.md");

/// The folder of the packages, built once for all tests, with the program of the tests.
static PACKAGES: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(petstore()).with_file_name("packages");
    std::fs::create_dir_all(&folder).unwrap();
    let pack = "scripts/packages --program \"$FOLDER/petstore\" --output \"$FOLDER\"";
    let mut shell = shell(&format!("strip -o \"$FOLDER/petstore\" '{}'; {pack}", petstore()));
    let output = run(shell.env("FOLDER", &folder), Path::new(REPOSITORY));
    assert!(output.status.success(), "{}", shown(&output));
    folder
});

fn files(folder: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(Path::new(REPOSITORY).join(folder)).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

/// A project in a folder beside that of petstore, with the tests of the page.
struct Project(Folder);

impl Project {
    /// Installs a package with the command of the page that begins with `install`.
    fn with(install: &str) -> Self {
        let project = Self(Folder::new());
        for folder in ["tmp", "shop", "petstore/target"] {
            std::fs::create_dir_all(project.0.path(folder)).unwrap();
        }
        symlink(&*PACKAGES, project.0.path("petstore/target/packages")).unwrap();
        for file in files("docs/ephemeral").iter().chain(&files("tests/contract/packages")) {
            std::fs::copy(file, project.0.path("shop").join(file.file_name().unwrap())).unwrap();
        }
        project.0.write("shop/package.json", r#"{"type":"module"}"#);
        project.0.write("shop/go.mod", "module shop\n");
        project.succeeds("python -m venv --without-pip env");
        let command = PAGE.lines().find(|line| line.starts_with(install)).expect("the page has the command");
        assert!(README.contains(command), "{command}");
        project.succeeds(command);
        project
    }

    /// Makes a package of npm available that `scripts/test` has installed.
    fn link(&self, package: &str) {
        let link = self.0.path("shop/node_modules").join(package);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(tool("npm/node_modules").join(package), link).unwrap();
    }

    /// A command that finds no Rust, reaches no registry, and has the pytest that `scripts/test` has installed.
    fn shell(&self, command: &str) -> Command {
        let mut shell = shell(command);
        let (env, python, npm) = (self.0.path("shop/env/bin"), tool("python/bin"), tool("npm/node_modules/.bin"));
        let packages = files("target/tools/python/lib")[0].join("site-packages");
        shell
            .env("PATH", format!("{}:{}:{}:/usr/bin:/bin", env.display(), python.display(), npm.display()))
            .env("PYTHONPATH", packages)
            // These plugins take seconds to load.
            .env("PYTEST_ADDOPTS", "-p no:cacheprovider -p no:schemathesis -p no:hypothesispytest")
            .env("TMPDIR", self.0.path("tmp"))
            .envs([("PIP_PYTHON", "env"), ("PIP_NO_INDEX", "1"), ("npm_config_offline", "true")])
            // Another database, which no store uses.
            .env("PETSTORE_DATABASE_URL", "postgres://127.0.0.1:1/shop");
        shell
    }

    fn run(&self, command: &str) -> Output {
        run(&mut self.shell(command), &self.0.path("shop"))
    }

    /// Runs a command that leaves no store.
    fn succeeds(&self, command: &str) {
        let output = self.run(command);
        assert!(output.status.success(), "{command}\n{}", shown(&output));
        assert_eq!(self.stores(), 0, "{command}");
    }

    /// Runs two tests that wait, each with a store of its own, and kills their processes.
    fn leaves_nothing_when_killed(&self, command: &str) {
        let folder = self.0.path("shop");
        let mut suite = Process::start(self.shell(command).current_dir(&folder).env("HOME", &folder));
        let waiting = || std::fs::read_to_string(self.0.path("shop/waiting")).unwrap_or_default();
        within(10 * TIMEOUT, "starting two stores", || suite.has_ended() || waiting().lines().count() == 2);
        let urls: HashSet<_> = waiting().lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
        assert!(urls.len() == 2 && self.stores() >= 2, "{urls:?}");

        self.run("kill -KILL $(cut -d ' ' -f 1 waiting | sort -u)");

        assert_ne!(suite.end().code, Some(0));
        within(TIMEOUT, "ending the stores", || self.stores() == 0);
    }

    /// The number of temporary folders of stores.
    fn stores(&self) -> usize {
        self.0.names("tmp").iter().filter(|name| name.starts_with("petstore")).count()
    }
}

#[test]
fn page_links_the_programs_that_are_tested() {
    for file in files("docs/ephemeral") {
        let name = file.file_name().unwrap().display();
        assert!(PAGE.contains(&format!("](ephemeral/{name})")), "the page does not link {name}");
    }
}

#[test]
fn wheel_has_the_program_and_fixtures_for_pytest() {
    let project = Project::with("pip install");
    project.succeeds("python -m pytest test_store.py test_dropped.py test_package.py && sh test.sh");
    project.succeeds("http_proxy=http://127.0.0.1:1 NO_PROXY= python -m pytest test_store.py");
    project.succeeds("pip install --target folder ../petstore/target/packages/petstore-*.whl");
    project.succeeds("PYTHONPATH=folder:$PYTHONPATH python -m pytest test_store.py");
    project.leaves_nothing_when_killed("python -m pytest -n 2 test_waiting.py");
}

#[test]
fn npm_package_has_the_program_and_a_fixture_for_vitest() {
    let project = Project::with("npm install");
    for package in ["vitest", "@types/node"] {
        project.link(package);
    }
    project.succeeds("tsc --strict --skipLibCheck --target es2022 --module nodenext --noEmit *.ts");
    // A busy machine takes longer than the five seconds that Vitest gives a test.
    let tests = "--testTimeout 60000 --hookTimeout 60000 store.test.ts dropped.test.ts package.test.ts";
    project.succeeds(&format!("npx petstore ephemeral -- vitest run {tests}"));
    project.succeeds("node --test store.node.ts");
    project.succeeds("mv waiting.test.ts 1.test.ts && cp 1.test.ts 2.test.ts");
    project.leaves_nothing_when_killed(
        "vitest run --testTimeout 60000 --hookTimeout 60000 --maxWorkers 2 1.test.ts 2.test.ts",
    );
    let killed = project.run("npx petstore ephemeral -- sh -c 'kill -KILL $PPID'");
    assert_eq!(killed.status.code(), Some(137), "{}", shown(&killed));
    let missing = shown(&project.run("mv node_modules/@petstore . && npx petstore --version"));
    assert!(missing.starts_with("\nerror: petstore needs the package @petstore/"), "{missing}");
    assert_eq!(missing.trim().lines().count(), 1, "{missing}");
}

#[test]
fn go_package_starts_stores() {
    let project = Project::with("tar ");
    let go = |command: &str| format!("export PETSTORE=$PWD/petstoretest/petstore; {}", go(command));
    project.succeeds(&go("vet ./..."));
    project.succeeds(&go("test -skip Waits"));
    project.leaves_nothing_when_killed(&go("test -parallel 2 -run Waits"));
}
