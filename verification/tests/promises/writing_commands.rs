//! The commands that write, and what they change.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::{Database, PostgresServer};

use crate::restore_faults::copy;

pub struct Command {
    /// `FOLDER` is replaced by the folder of the place, `URL` by an empty PostgreSQL database.
    pub line: &'static str,
    /// The output of the command, besides the database.
    output: Output,
    /// False if taking a snapshot has the same effect, so that the check cannot notice a command that did nothing.
    pub changes: bool,
}

#[derive(Clone, Copy)]
enum Output {
    Nothing,
    /// The file `output`.
    File,
    /// The database in the folder `copy`.
    Copy,
    /// The PostgreSQL database.
    Postgres,
}

const fn command(line: &'static str, output: Output) -> Command {
    Command { line, output, changes: true }
}

pub const ALL: [Command; 16] = [
    command("account create bob@example.com", Output::Nothing),
    command("account set-password ada@example.com --password-stdin", Output::Nothing),
    command("account suspend ada@example.com", Output::Nothing),
    command("account set-email ada@example.com eve@example.com", Output::Nothing),
    command("account delete ada@example.com --yes", Output::Nothing),
    command("account erase ada@example.com --discard-messages --yes", Output::Nothing),
    command("key create --account ada@example.com --name second", Output::Nothing),
    command("key revoke 1", Output::Nothing),
    command("key rotate 1", Output::Nothing),
    command("pets import FOLDER/animals.ndjson", Output::Nothing),
    command("pets export FOLDER/output --force", Output::File),
    command("messages export FOLDER/output --force", Output::File),
    command("backup FOLDER/copy/petstore.db --force", Output::Copy),
    command("restore FOLDER/backup --force", Output::Nothing),
    command("move --database-url URL", Output::Postgres),
    Command { line: MIGRATE, output: Output::Nothing, changes: false },
];

const MIGRATE: &str = "migrate";

/// The state that a command can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Rows of the database, without times and random values.
    pub database: String,
    pub output: String,
    /// The text that the command printed.
    pub stdout: String,
}

impl Snapshot {
    /// Returns whether this is the same state. Ignores what was printed.
    pub fn is_of(&self, state: &Self) -> bool {
        (&self.database, &self.output) == (&state.database, &state.output)
    }

    /// Number of lines that were printed. Their text is random in part.
    pub fn lines(&self) -> usize {
        self.stdout.lines().count()
    }
}

const ROWS: &str = "SELECT 'account ' || id || CASE WHEN deleted_at IS NULL THEN ' ' || email ELSE '' END
        || CASE WHEN password_hash IS NULL THEN '' ELSE ' with a password' END
        || CASE WHEN suspended_at IS NULL THEN '' ELSE ' suspended' END FROM accounts
    UNION ALL SELECT 'session of ' || account_id FROM sessions
    UNION ALL SELECT 'key ' || id || ' ' || name || CASE WHEN revoked_at IS NULL THEN '' ELSE ' revoked' END
        || CASE WHEN expires_at IS NULL THEN '' ELSE ' expires' END FROM api_keys
    UNION ALL SELECT 'animal ' || id || ' ' || name || ' ' || status FROM pets
    UNION ALL SELECT 'message ' || message FROM messages
    UNION ALL SELECT 'order ' || id || ' of ' || pet_id || ' ' || status FROM orders
    ORDER BY 1";

/// A folder with a database as each case finds it, and what the commands read and write.
pub struct Place {
    folder: PathBuf,
    /// The URL for the current case.
    postgres: RefCell<Option<String>>,
}

impl Place {
    pub fn make(folder: &Path) -> Self {
        let place = Self { folder: folder.to_owned(), postgres: RefCell::default() };
        fs::create_dir(place.path("empty")).unwrap();
        let template = Database::folder(&place.path("template"));
        let key = template.make_key();
        let animals = |name: &str, count| {
            let lines = (1..=count).map(|number| format!(r#"{{"name":"{name} {number}","categoryId":1}}"#) + "\n");
            lines.collect::<String>()
        };
        fs::write(place.path("animals.ndjson"), animals("old", 20)).unwrap();
        template.run(&place.replaced("pets import FOLDER/animals.ndjson"));
        let mut service = template.serve();
        assert_eq!(service.send_message(&key, "hello").status(), 202);
        service.stop();
        template.sql("INSERT INTO sessions VALUES (zeroblob(32), 1, 0, 0)");
        fs::write(place.input(), "correct horse battery\n").unwrap();
        fs::write(place.path("animals.ndjson"), animals("new", 300)).unwrap();
        let other = Database::folder(&place.path("other"));
        other.run("account create eve@example.com");
        other.run(&place.replaced("pets import FOLDER/animals.ndjson"));
        other.run(&place.replaced("backup FOLDER/backup"));
        place
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn trace(&self) -> PathBuf {
        self.path("trace")
    }

    /// The file that every command gets as stdin.
    pub fn input(&self) -> PathBuf {
        self.path("input")
    }

    pub fn database(&self) -> Database {
        Database::folder(&self.path("data"))
    }

    /// Restores the state before the command.
    pub fn reset(&self, command: &Command) {
        let before = if command.line == MIGRATE { "empty" } else { "template" };
        copy(&self.path(before), &self.path("data"));
        match command.output {
            Output::Nothing => {}
            Output::File => fs::write(self.path("output"), "old").unwrap(),
            Output::Copy => {
                // A lock, which the last case has left, would make the folder a data directory.
                let _ = fs::remove_dir_all(self.path("copy"));
                fs::create_dir(self.path("copy")).unwrap();
                fs::copy(self.path("backup"), self.path("copy/petstore.db")).unwrap();
            }
            Output::Postgres => {
                let server = PostgresServer::shared();
                if let Some(last) = self.postgres.replace(Some(server.database())) {
                    server.remove(&last);
                }
            }
        }
    }

    pub fn line(&self, command: &Command) -> String {
        self.replaced(command.line)
    }

    fn replaced(&self, line: &str) -> String {
        let url = self.postgres.borrow();
        line.replace("FOLDER", self.folder.to_str().unwrap()).replace("URL", url.as_deref().unwrap_or_default())
    }

    /// Opens the database with petstore, which may have to recover it, and returns its content and what was printed.
    pub fn snapshot(&self, command: &Command, stdout: String) -> Snapshot {
        let database = self.database();
        database.run(if command.line == MIGRATE { MIGRATE } else { "account list" });
        let output = match command.output {
            Output::Nothing => String::new(),
            Output::File => fs::read_to_string(self.path("output")).unwrap(),
            Output::Copy => rows(&Database::folder(&self.path("copy"))),
            // Tables without rows count as no tables, because another attempt fills them.
            Output::Postgres => {
                Database::url(self.postgres.borrow().clone().unwrap()).try_sql(ROWS).unwrap_or_default()
            }
        };
        Snapshot { database: rows(&database), output, stdout }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Reads the rows of an embedded database, which must be intact.
fn rows(database: &Database) -> String {
    assert_eq!(database.sql("PRAGMA integrity_check"), "ok");
    database.sql(ROWS)
}
