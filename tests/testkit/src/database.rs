//! The built program with a database.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::process::{Server, petstore, with_clean_environment};

/// Serves on free ports.
pub const SERVE: &str = "serve --listen 127.0.0.1:0 --messages-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";

/// Where the data is, passed to every command as an environment variable.
#[derive(Clone)]
pub struct Database {
    variable: &'static str,
    value: OsString,
    /// The command that starts every other command, if the database is reachable only from there.
    wrapper: Vec<OsString>,
}

impl Database {
    pub fn folder(data_dir: &Path) -> Self {
        Self { variable: "PETSTORE_DATA_DIR", value: data_dir.into(), wrapper: Vec::new() }
    }

    pub fn url(url: impl Into<OsString>) -> Self {
        Self { variable: "PETSTORE_DATABASE_URL", value: url.into(), wrapper: Vec::new() }
    }

    /// The same database for commands that `wrapper` starts.
    pub fn wrapped_by(self, wrapper: &Command) -> Self {
        let wrapper = [wrapper.get_program()].into_iter().chain(wrapper.get_args()).map(OsString::from).collect();
        Self { wrapper, ..self }
    }

    pub fn petstore(&self, command: &str) -> Command {
        let Some((program, arguments)) = self.wrapper.split_first() else {
            return self.with(Command::new(petstore()), command);
        };
        let mut wrapper = Command::new(program);
        wrapper.args(arguments);
        self.petstore_by(wrapper, command)
    }

    /// The same command started by `wrapper`, which takes the program and its arguments as its last arguments.
    pub fn petstore_by(&self, mut wrapper: Command, command: &str) -> Command {
        wrapper.arg(petstore());
        self.with(wrapper, command)
    }

    fn with(&self, mut program: Command, command: &str) -> Command {
        with_clean_environment(&mut program);
        program.args(command.split(' ')).env(self.variable, &self.value);
        program
    }

    /// Starts `petstore serve` on free ports and waits until it listens.
    pub fn serve(&self) -> Server {
        self.serve_with("")
    }

    /// Serves with further flags.
    pub fn serve_with(&self, flags: &str) -> Server {
        let mut command = self.petstore(SERVE);
        command.args(flags.split_whitespace());
        Server::start(&mut command)
    }

    /// Serves under `wrapper`, which replaces itself with the program.
    pub fn serve_by(&self, wrapper: Command) -> Server {
        Server::start(&mut self.petstore_by(wrapper, SERVE))
    }

    /// Creates the account `ada@example.com` and returns a key of it.
    pub fn make_key(&self) -> String {
        self.key_of("ada@example.com")
    }

    /// Creates an account and returns a key of it.
    pub fn key_of(&self, email: &str) -> String {
        let made = self.petstore(&format!("account create {email}")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        self.another_key_of(email)
    }

    pub fn another_key(&self) -> String {
        self.another_key_of("ada@example.com")
    }

    fn another_key_of(&self, email: &str) -> String {
        let made = self.petstore(&format!("key create --account {email} --name test")).output().unwrap();
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    }
}
