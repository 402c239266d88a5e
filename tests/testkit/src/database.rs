//! A database, and the commands of the built program that use it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use tempfile::TempDir;

use crate::postgres::{PostgresServer, try_query};
use crate::process::{Process, petstore, with_clean_environment};
use crate::server::Server;
use crate::trial::is_full;
use crate::wait::TIMEOUT;

/// Passed to every command as an environment variable.
#[derive(Clone)]
pub struct Database {
    place: Place,
    /// The command that starts every other command, if the database is reachable only from there.
    wrapper: Vec<OsString>,
    /// `--database-timeout` on PostgreSQL. `None` is the default.
    timeout: Option<&'static str>,
}

/// `--database-timeout` of short runs: load does not reach the limits.
pub const PATIENT: &str = "60s";

#[derive(Clone)]
enum Place {
    Temporary(Arc<TempDir>),
    Folder(PathBuf),
    Url(String),
}

/// Flags for free ports.
pub const FREE_PORTS: &str = Database::SERVE.split_at("serve ".len()).1;

impl Database {
    /// The command that serves on free ports.
    pub const SERVE: &str = "serve --listen 127.0.0.1:0 --messages-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";

    /// An embedded database in a temporary folder, which is deleted with the last clone.
    pub fn temporary() -> Self {
        Self::at(Place::Temporary(Arc::new(tempfile::tempdir().unwrap())))
    }

    pub fn folder(data_dir: &Path) -> Self {
        Self::at(Place::Folder(data_dir.to_owned()))
    }

    /// A new database on the shared PostgreSQL server.
    pub fn postgres() -> Self {
        Self::url(PostgresServer::shared().database())
    }

    pub fn url(url: impl Into<String>) -> Self {
        Self::at(Place::Url(url.into()))
    }

    fn at(place: Place) -> Self {
        Self { place, wrapper: Vec::new(), timeout: (!is_full()).then_some(PATIENT) }
    }

    /// Returns the same database for services with the default `--database-timeout`, for tests that reach the limits. Load
    /// may reach them too, so each request may get 503.
    pub fn with_default_timeout(self) -> Self {
        Self { timeout: None, ..self }
    }

    /// Returns the same database for services with this `--database-timeout`. A full run has the default.
    pub fn with_timeout(self, timeout: &'static str) -> Self {
        Self { timeout: (!is_full()).then_some(timeout), ..self }
    }

    /// Returns the same database for commands that `wrapper` starts.
    pub fn wrapped_by(self, wrapper: &Command) -> Self {
        let wrapper = [wrapper.get_program()].into_iter().chain(wrapper.get_args()).map(OsString::from).collect();
        Self { wrapper, ..self }
    }

    /// Returns whether this is a SQLite database.
    pub const fn is_embedded(&self) -> bool {
        !matches!(self.place, Place::Url(_))
    }

    /// The data directory of an embedded database.
    pub fn data_dir(&self) -> &Path {
        match &self.place {
            Place::Temporary(folder) => folder.path(),
            Place::Folder(folder) => folder,
            Place::Url(url) => panic!("{url} has no folder"),
        }
    }

    /// A file in the data directory of an embedded database.
    pub fn file(&self, name: &str) -> PathBuf {
        self.data_dir().join(name)
    }

    /// Runs SQL without petstore. Returns a line for each row, columns separated by `|`.
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Like [`Self::sql`]. Fails if the database rejects the statement.
    pub fn try_sql(&self, sql: &str) -> Result<String, String> {
        match &self.place {
            Place::Url(url) => try_query(url, sql),
            _ => self.try_sqlite(sql).map_err(|error| error.to_string()),
        }
    }

    fn try_sqlite(&self, sql: &str) -> rusqlite::Result<String> {
        let conn = Connection::open(self.file("petstore.db"))?;
        conn.busy_timeout(TIMEOUT)?;
        // SQLite would write the log of a killed process back and remove it, and the next start is refused without it.
        let is_needed =
            std::fs::read_to_string(self.file("petstore.lock")).is_ok_and(|record| record.contains("log known"));
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, is_needed)?;
        let mut statement = conn.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut lines = Vec::new();
        while let Some(row) = rows.next()? {
            let cells = (0..columns).map(|column| match row.get(column).unwrap() {
                Value::Integer(integer) => integer.to_string(),
                Value::Text(text) => text,
                other => panic!("{other:?} cannot be shown"),
            });
            lines.push(cells.collect::<Vec<_>>().join("|"));
        }
        Ok(lines.join("\n"))
    }

    /// Drops a database on the shared PostgreSQL server. A temporary folder is deleted anyway.
    pub fn remove(&self) {
        if let Place::Url(url) = &self.place {
            PostgresServer::shared().remove(url);
        }
    }

    pub fn petstore(&self, command: &str) -> Command {
        let Some((program, arguments)) = self.wrapper.split_first() else {
            return self.with(Command::new(petstore()), command);
        };
        let mut wrapper = Command::new(program);
        wrapper.args(arguments);
        self.petstore_by(wrapper, command)
    }

    /// Returns the command as started by `wrapper`, which takes the program and its arguments as its last arguments.
    pub fn petstore_by(&self, mut wrapper: Command, command: &str) -> Command {
        wrapper.arg(petstore());
        self.with(wrapper, command)
    }

    fn with(&self, mut program: Command, command: &str) -> Command {
        with_clean_environment(&mut program);
        program.args(command.split_whitespace());
        match &self.place {
            Place::Url(url) => {
                program.env("PETSTORE_DATABASE_URL", url);
                program.envs(self.timeout.map(|timeout| ("PETSTORE_DATABASE_TIMEOUT", timeout)))
            }
            _ => program.env("PETSTORE_DATA_DIR", self.data_dir()),
        };
        program
    }

    /// Runs a command that must succeed, and returns what it prints.
    pub fn run(&self, command: &str) -> String {
        // Load does not reach its limits.
        succeed(&mut self.clone().with_timeout(PATIENT).petstore(command))
    }

    /// Runs a command with `--json`, which prints a list.
    pub fn json(&self, command: &str) -> Vec<serde_json::Value> {
        serde_json::from_str(&self.run(&format!("{command} --json"))).unwrap()
    }

    /// Runs a command that must end with exit status 1, and returns its stderr.
    pub fn rejects(&self, command: &str) -> String {
        let ended = Process::start(self.petstore(command).stdin(Stdio::null())).end();
        assert_eq!(ended.code, Some(1), "{command}: {ended:?}");
        ended.stderr
    }

    /// Runs a command on a terminal on which `answer` is typed. Returns the exit status and what is shown.
    pub fn on_a_terminal(&self, command: &str, answer: &str) -> (Option<i32>, String) {
        let script = format!("printf '{answer}\\n' | script --quiet --return --command \"$*\" /dev/null");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh"]);
        let output = self.petstore_by(shell, command).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    /// Starts `petstore serve` on free ports and waits until it listens.
    pub fn serve(&self) -> Server {
        self.serve_with("")
    }

    /// Serves with further flags. If load may reach the limits, serves as under a supervisor.
    pub fn serve_with(&self, flags: &str) -> Server {
        let is_patient = is_full() || self.timeout == Some(PATIENT);
        if is_patient { Server::start(self.serve_command(flags)) } else { self.serve_supervised(flags) }
    }

    /// Serves under `wrapper`, which replaces itself with the program.
    pub fn serve_by(&self, wrapper: Command) -> Server {
        Server::start(self.petstore_by(wrapper, Self::SERVE))
    }

    /// Serves as under a supervisor: a process that ends before it listens is started again, up to ten times. Under full
    /// load, a start may miss its own deadlines.
    pub fn serve_supervised(&self, flags: &str) -> Server {
        (0..10).find_map(|_| Server::try_start(self.serve_command(flags))).expect("the service listens")
    }

    /// `petstore serve` on free ports with further flags.
    pub fn serve_command(&self, flags: &str) -> Command {
        self.petstore(&format!("{} {flags}", Self::SERVE))
    }

    /// Creates the account `ada@example.com`, which is staff, and returns a key of it.
    pub fn make_key(&self) -> String {
        self.key_of("ada@example.com")
    }

    /// Creates a staff account and returns a key of it.
    pub fn key_of(&self, email: &str) -> String {
        self.run(&format!("account create {email} --role staff"));
        self.another_key_of(email, "")
    }

    /// Creates the account of a customer and returns a key of it.
    pub fn customer(&self, email: &str) -> String {
        self.run(&format!("account create {email}"));
        self.another_key_of(email, "")
    }

    /// Returns a new key of `ada@example.com`.
    pub fn another_key(&self) -> String {
        self.another_key_of("ada@example.com", "")
    }

    /// Returns a new key of an account, created with further flags.
    pub fn another_key_of(&self, email: &str, flags: &str) -> String {
        self.run(&format!("key create --account {email} --name test {flags}")).trim().to_owned()
    }
}

/// Runs a command that must succeed, and returns what it prints.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
