//! A shell that runs pasted commands. Its `petstore` is the built program.

use std::os::unix::fs::{PermissionsExt, symlink};
use testkit::{Folder, Process, petstore};

/// Standard input of each command: a password.
const TYPED: &str = "correct horse battery\n";

/// Wrapper that runs the real curl, the next one in `PATH`, and writes the response's status to stderr.
const CURL: &str = r#"#!/bin/sh
PATH=${PATH#*:}
exec curl --show-error --max-time 60 --write-out '%{stderr}STATUS %{http_code}\n' "$@"
"#;

/// Outcome of a command.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    /// Status of each curl call. 0 if there was no response.
    pub statuses: Vec<u16>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Returns whether the command and all its curl calls succeeded.
    pub fn succeeded(&self) -> bool {
        self.code == 0 && self.statuses.iter().all(|status| (200..300).contains(status))
    }
}

/// Runs `commands` in order in one shell, in `folder` and with the variables of `environment`.
pub fn paste(folder: &Folder, environment: &[(&str, String)], commands: &[String]) -> Vec<Ran> {
    let tools = tempfile::tempdir().unwrap();
    let tool = |name: &str| tools.path().join(name);
    symlink(petstore(), tool("petstore")).unwrap();
    std::fs::write(tool("curl"), CURL).unwrap();
    std::fs::set_permissions(tool("curl"), PermissionsExt::from_mode(0o755)).unwrap();
    let typed = tool("typed");
    std::fs::write(&typed, TYPED).unwrap();
    let mut script = String::new();
    for (number, command) in commands.iter().enumerate() {
        let [stdout, stderr, code] = ["stdout", "stderr", "code"].map(|what| tool(&format!("{number}.{what}")));
        let (typed, stdout, stderr, code) = (typed.display(), stdout.display(), stderr.display(), code.display());
        // In braces, unlike in a subshell, variables stay set for the next commands.
        script.push_str(&format!("{{ {command}\n}} <'{typed}' >'{stdout}' 2>'{stderr}'; echo $? >'{code}'\n"));
    }
    std::fs::write(tool("script"), &script).unwrap();
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let mut shell = folder.program("sh");
    shell.arg(tool("script")).env("PATH", path).env("NO_PROXY", "127.0.0.1").envs(environment.iter().cloned());
    let ended = Process::start(&mut shell).end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{script}");
    let read = |number: usize, what: &str| std::fs::read_to_string(tool(&format!("{number}.{what}"))).unwrap();
    (0..commands.len())
        .map(|number| {
            let (noted, stderr): (Vec<_>, Vec<_>) =
                read(number, "stderr").lines().map(str::to_owned).partition(|line| line.starts_with("STATUS "));
            Ran {
                code: read(number, "code").trim().parse().unwrap(),
                statuses: noted.iter().map(|line| line["STATUS ".len()..].parse().unwrap()).collect(),
                stdout: read(number, "stdout"),
                stderr: stderr.join("\n"),
            }
        })
        .collect()
}
