//! The commands of README.md and docs/ work for a reader who pastes them, in order, on a quickstart: on its first start
//! and again on its second.
//!
//! A block of commands is fenced without a language, or as `sh`. Other blocks name their language; output is `text`.
//! Every block runs by default, in one shell per page. A comment on the line before the fence gives the reason why a
//! block does not run (`<!-- not run: needs systemd -->`), or runs on the first start only (`<!-- run once: … -->`). In
//! a block with prompts (`$ `), the lines between are output. If they show an error's status, the command must get that
//! status. If they show an error of curl (`curl: (52) …`), it must fail with that error. Otherwise it must succeed.

use std::path::Path;

use testkit::{Folder, Server, Signal, root};

use crate::shell::{Ran, paste};

/// Reasons not to run a block: it needs something that a quickstart on one machine does not have, or another test runs it.
const NOT_RUN: [&str; 7] = [
    "builds petstore", "serves until it is stopped", "needs systemd", "needs containers", "needs a cluster",
    "needs values of yours", "runs in tests/contract",
];

/// Reasons to run a block on the first start only: it creates something that exists afterwards.
const RUN_ONCE: [&str; 2] = ["the account is then there", "the file is then there"];

pub struct Block {
    page: &'static str,
    line: usize,
    mark: Mark,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Run,
    RunOnce,
    NotRun,
}

/// A command of a block, and the outcome that the page shows for it. `None` means success.
pub struct Step {
    pub command: String,
    shown: Option<Shown>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Status(u16),
    /// The exit code of curl, if there is no response.
    CurlError(i32),
}

#[test]
fn documented_commands_work_on_every_start() {
    let folder = Folder::new();
    let pages = markdown().into_iter().map(|page| {
        let name: &'static str = page.leak();
        (name, blocks(name, &std::fs::read_to_string(root().join(name)).unwrap()))
    });
    let pages: Vec<_> = pages.collect();
    let mut failures = Vec::new();
    for start in [1, 2] {
        let server = folder.serve("quickstart");
        server.printed_until("Stop");
        for (name, blocks) in &pages {
            let blocks = blocks.iter().filter(|block| runs(block.mark, start));
            let steps: Vec<_> = blocks.flat_map(|block| steps(block).into_iter().map(|s| (block.line, s))).collect();
            let examples = steps.iter().filter(|(_, step)| step.command.contains("curl")).count();
            assert!(examples >= 6 || !["docs/tutorial.md", "docs/api.md"].contains(name), "{name} has examples");
            let commands: Vec<_> = steps.iter().map(|(_, step)| at(&server, &step.command)).collect();
            for ((line, step), ran) in steps.iter().zip(paste(&folder, &environment(&server), &commands)) {
                let as_shown = match step.shown {
                    None => ran.succeeded(),
                    Some(Shown::Status(status)) => ran.code == 0 && ran.statuses == [status],
                    Some(Shown::CurlError(code)) => ran.code == code && ran.statuses == [0],
                };
                if !as_shown {
                    let (command, Ran { code, statuses, stdout, stderr }) = (&step.command, ran);
                    failures.push(format!(
                        "start {start}, {name}, block at line {line}: {command}\n\
                         exit {code}, {statuses:?}\n{stdout}{stderr}\n"
                    ));
                }
            }
        }
        assert_eq!(server.end_by(Signal::TERM).code, Some(0));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn runs(mark: Mark, start: u32) -> bool {
    mark == Mark::Run || (mark == Mark::RunOnce && start == 1)
}

/// README.md and the pages of docs/ and docs/evidence/, in the order of their names.
fn markdown() -> Vec<String> {
    let mut pages = Vec::new();
    for folder in ["docs", "docs/evidence"] {
        let files = std::fs::read_dir(root().join(folder)).unwrap().map(|file| file.unwrap().file_name());
        let names = files.filter_map(|name| name.into_string().ok()).filter(|name| name.ends_with(".md"));
        pages.extend(names.map(|name| format!("{folder}/{name}")));
    }
    pages.sort();
    ["README.md".to_owned()].into_iter().chain(pages).collect()
}

/// Returns the blocks of commands in a page.
pub fn blocks(page: &'static str, text: &str) -> Vec<Block> {
    let (mut blocks, mut before, mut lines) = (Vec::new(), "", text.lines().enumerate());
    while let Some((number, line)) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let inside: Vec<_> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            if matches!(language, "" | "sh") {
                let (line, mark) = (number + 1, mark(page, before));
                blocks.push(Block { page, line, mark, text: inside.join("\n") });
            }
        }
        before = line;
    }
    blocks
}

fn mark(page: &str, before: &str) -> Mark {
    let Some(comment) = before.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) else {
        return Mark::Run;
    };
    match comment.split_once(": ") {
        Some(("not run", why)) if NOT_RUN.contains(&why) => Mark::NotRun,
        Some(("run once", why)) if RUN_ONCE.contains(&why) => Mark::RunOnce,
        _ => panic!("{page}: {before:?} is no known reason"),
    }
}

/// Returns the commands of a block: all its lines, or only those with prompts if it has prompts. A line that ends in `\`
/// continues on the next line.
pub fn steps(block: &Block) -> Vec<Step> {
    let has_prompts = block.text.lines().any(|line| line.starts_with("$ "));
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for line in block.text.lines() {
        let command = if has_prompts { line.strip_prefix("$ ") } else { Some(line).filter(|line| !line.is_empty()) };
        match (goes_on, command) {
            (true, _) => {
                let step = steps.last_mut().expect("the line before begins a command");
                step.command = format!("{}\n{line}", step.command);
            }
            (false, Some(command)) => steps.push(Step { command: command.to_owned(), shown: None }),
            (false, None) if has_prompts => {
                let step = steps.last_mut().unwrap_or_else(|| panic!("{}:{}: no prompt", block.page, block.line));
                step.shown = step.shown.or(shown(line));
            }
            (false, None) => {}
        }
        goes_on = (goes_on || command.is_some()) && line.ends_with('\\');
    }
    steps
}

/// Parses the status in a status line or in the body of an error, or the exit code in an error of curl.
fn shown(line: &str) -> Option<Shown> {
    if let Some(status) = line.strip_prefix("HTTP/1.1 ") {
        return status.split(' ').next()?.parse().ok().map(Shown::Status);
    }
    if let Some(error) = line.strip_prefix("curl: (") {
        return error.split(')').next()?.parse().ok().map(Shown::CurlError);
    }
    let body: serde_json::Value = serde_json::from_str(line).ok()?;
    let status = body.get("code").and_then(|_| body["status"].as_u64());
    status.and_then(|status| u16::try_from(status).ok()).map(Shown::Status)
}

/// Replaces the default addresses in a command by those of `server`.
fn at(server: &Server, command: &str) -> String {
    let listeners = [("127.0.0.1:8080", "store"), ("127.0.0.1:8081", "messages"), ("127.0.0.1:8082", "ops")];
    listeners.iter().fold(command.to_owned(), |command, (default, listener)| {
        command.replace(default, &server.address(listener).to_string())
    })
}

/// The addresses of `server` as settings, for commands that name none.
fn environment(server: &Server) -> [(&'static str, String); 3] {
    [("PETSTORE_LISTEN", "store"), ("PETSTORE_MESSAGES_LISTEN", "messages"), ("PETSTORE_OPS_LISTEN", "ops")]
        .map(|(variable, listener)| (variable, server.address(listener).to_string()))
}

#[test]
fn links_between_pages_resolve() {
    let pages = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md"];
    for page in pages.map(str::to_owned).into_iter().chain(markdown()) {
        let folder = root().join(&page).parent().unwrap().to_owned();
        for target in prose(&root().join(&page)).split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if target.starts_with("https://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { root().join(&page) } else { folder.join(file) };
            assert!(file.exists(), "{page}: {target}");
            let is_heading = |line: &str| line.starts_with('#') && anchor(line) == heading;
            let is_row = |line: &str| line.starts_with(&format!("| <a id=\"{heading}\"></a>"));
            let found = || prose(&file).lines().any(|line| is_heading(line) || is_row(line));
            assert!(heading.is_empty() || found(), "{page}: {target}");
        }
    }
}

/// Returns a page without its fenced blocks.
fn prose(page: &Path) -> String {
    let text = std::fs::read_to_string(page).unwrap();
    text.split("\n```").step_by(2).collect()
}

/// Returns the anchor that Markdown gives a heading.
fn anchor(heading: &str) -> String {
    let kept =
        heading.trim_start_matches('#').trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}
