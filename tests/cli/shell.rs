//! A shell that runs pasted commands. Its `petstore` is the built program.

use std::os::unix::fs::symlink;
use testkit::{Folder, Process, petstore};

/// Standard input of each command: a password.
const TYPED: &str = "correct horse battery\n";

/// Wrapper that runs the real curl, the next one in `PATH`, and writes the response's status to stderr.
const CURL: &str = r#"PATH=${PATH#*:}
exec curl --show-error --max-time 60 --write-out '%{stderr}STATUS %{http_code}\n' "$@""#;

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
    let tools = Folder::new();
    symlink(petstore(), tools.path("petstore")).unwrap();
    tools.write_program("curl", CURL);
    tools.write("typed", TYPED);
    let dir = tools.path("").display().to_string();
    let mut script = String::new();
    for (number, command) in commands.iter().enumerate() {
        // In braces, unlike in a subshell, variables stay set for the next commands.
        script.push_str(&format!("{{ {command}\n}} <'{dir}typed' >'{dir}{number}.stdout' 2>'{dir}{number}.stderr'"));
        script.push_str(&format!("; echo $? >'{dir}{number}.code'\n"));
    }
    tools.write("script", &script);
    let path = format!("{dir}:{}", std::env::var("PATH").unwrap());
    let mut shell = folder.program("sh");
    shell.arg(tools.path("script")).env("PATH", path).env("NO_PROXY", "127.0.0.1").envs(environment.iter().cloned());
    let ended = Process::start(&mut shell).end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{script}");
    let read = |number: usize, what: &str| tools.read(&format!("{number}.{what}"));
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
