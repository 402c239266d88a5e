//! A folder, and the commands of the built program that run in it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::database::{Database, FREE_PORTS, PATIENT};
use crate::process::{Ended, Process, petstore, with_clean_environment};
use crate::server::Server;

/// The working directory of commands. It contains `petstore-data` and files named without a path.
pub struct Folder(tempfile::TempDir);

#[expect(clippy::new_without_default, reason = "a folder is made on disk, which `default` does not suggest")]
impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A folder with a database and the account `ada@example.com`.
    pub fn with_account() -> Self {
        let folder = Self::new();
        folder.succeed("account create ada@example.com");
        folder
    }

    /// A folder with the account `ada@example.com`, and a key of it.
    pub fn with_key() -> (Self, String) {
        let folder = Self::with_account();
        let key = folder.key();
        (folder, key)
    }

    /// A new folder, and a command that serves in it: see [`Self::serve`].
    pub fn serving(line: &str) -> (Self, Server) {
        let folder = Self::new();
        let server = folder.serve(line);
        (folder, server)
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Writes a shell script. Another process does: a child that another thread has forked has the files of this process open
    /// until it executes its program, and a file that is open for writing cannot be executed.
    pub fn write_program(&self, name: &str, text: &str) {
        let mut shell = self.program("sh");
        shell.args(["-c", r#"printf '#!/bin/sh\n%s\n' "$1" >"$0" && chmod 755 "$0""#, name, text]);
        assert_eq!(Process::start(&mut shell).end().code, Some(0));
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// The sorted names of the entries in a folder.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A command line of the program, split at white space.
    pub fn command(&self, line: &str) -> Command {
        let mut command = self.program(petstore());
        command.args(line.split_whitespace());
        if line.contains("postgres://") {
            command.env("PETSTORE_DATABASE_TIMEOUT", PATIENT);
        }
        command
    }

    /// Another program, in the same folder and with the same minimal environment.
    pub fn program(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(self.0.path()).stdin(Stdio::null());
        with_clean_environment(&mut command);
        command
    }

    pub fn run(&self, line: &str) -> Ended {
        Process::start(&mut self.command(line)).end()
    }

    /// Runs a command with `input` on stdin.
    pub fn run_with(&self, line: &str, input: impl AsRef<[u8]>) -> Ended {
        let mut process = Process::start(self.command(line).stdin(Stdio::piped()));
        let mut stdin = process.take_input();
        // A command that fails early does not read its input.
        let _ = stdin.write_all(input.as_ref());
        drop(stdin);
        process.end()
    }

    /// Runs a command that must succeed, and returns what it prints.
    #[track_caller]
    pub fn succeed(&self, line: &str) -> String {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        ended.stdout
    }

    /// Runs a command that must fail, with this error and no other output.
    #[track_caller]
    pub fn fails(&self, line: &str, error: &str) {
        assert_eq!(self.run(line).shown(), format!("exit 1\nerror: {error}\n"), "{line}");
    }

    /// Runs a command that would serve and must fail, with this error and no other line in its log.
    #[track_caller]
    pub fn fails_to_serve(&self, line: &str, error: &str) {
        assert_eq!(self.run(line).shown_log(), format!("exit 1\nERROR {error}\n"), "{line}");
    }

    /// A new key of `ada@example.com`.
    pub fn key(&self) -> String {
        self.succeed("key create --account ada@example.com --name test").trim_end().to_owned()
    }

    /// Imports animals from `animals.ndjson`, which it writes.
    #[track_caller]
    pub fn import(&self, animals: impl Iterator<Item = String>) {
        self.write("animals.ndjson", animals.collect::<String>());
        self.succeed("pets import animals.ndjson");
    }

    /// Runs a command with `--json`, which prints a list.
    #[track_caller]
    pub fn json(&self, line: &str) -> Vec<Value> {
        serde_json::from_str(&self.succeed(&format!("{line} --json"))).unwrap()
    }

    /// The table that a command prints. The values of these fields, which differ from run to run, are replaced by `#`s,
    /// because they have the same width in every run.
    #[track_caller]
    pub fn table(&self, line: &str, varying: &[&str]) -> String {
        let rows = self.json(line);
        let values = varying.iter().flat_map(|field| rows.iter().filter_map(|row| row[*field].as_str()));
        values.fold(self.succeed(line), |table, value| table.replace(value, &"#".repeat(value.chars().count())))
    }

    /// The embedded database of commands that name no other.
    pub fn database(&self) -> Database {
        Database::folder(&self.path("petstore-data"))
    }

    /// Starts a command that serves, on free ports, and waits until it listens.
    pub fn serve(&self, line: &str) -> Server {
        Server::start(self.command(&format!("{line} {FREE_PORTS}")))
    }
}
