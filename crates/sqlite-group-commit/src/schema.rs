//! The schema of a database, which its application defines.

use rusqlite::{Connection, TransactionBehavior};

use crate::{Error, Result};

/// The application's schema, as opening, backup and restore need it.
///
/// `user_version` and `application_id` belong to this crate: a schema must not use them.
pub trait Schema {
    /// Fails if another program made the database. Accepts an empty one.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] says why the database is foreign. The path is added.
    fn refuse_foreign(&self, conn: &Connection) -> Result<()>;

    /// Returns whether the database has no schema yet.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read.
    fn is_new(&self, conn: &Connection) -> Result<bool>;

    /// Returns whether [`Self::migrate`] would change nothing.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read, or is newer than this program.
    fn is_current(&self, conn: &Connection) -> Result<bool>;

    /// Creates or migrates the schema. No other process migrates at the same time. A killed process may leave any of its
    /// transactions.
    ///
    /// # Errors
    ///
    /// Fails if this program cannot serve the database. Opening it fails then.
    fn migrate(&self, conn: &mut Connection) -> Result<()>;

    /// Fails unless this program can serve the database as it is. Called instead of [`Self::migrate`] on a read-only disk.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the schema is not current.
    fn require_current(&self, conn: &Connection) -> Result<()> {
        let why = "its schema is older than this program, and the disk takes no migration";
        if self.is_current(conn)? { Ok(()) } else { Err(Error::Unavailable(why.into())) }
    }

    /// Fails unless this program can serve a copy of the database once it is migrated. The file may come from anywhere, and
    /// SQLite has not checked it yet.
    ///
    /// # Errors
    ///
    /// Fails if the copy must not become a backup or be restored.
    fn verify(&self, conn: &Connection) -> Result<()>;

    /// Fails if a restore must not replace the database `old`, which may be damaged, by the copy that was verified last.
    ///
    /// # Errors
    ///
    /// Nothing is replaced then.
    fn may_replace(&self, old: &Connection) -> Result<()> {
        let _ = old;
        Ok(())
    }
}

/// A schema that numbered SQL steps create. Each step is a transaction. The table `schema_steps` records those that were
/// applied, so a step must not change once a database has it: append another one.
#[derive(Clone, Copy, Debug)]
pub struct Steps(pub &'static [&'static str]);

impl Steps {
    /// Returns the number of steps that the database has.
    fn applied(self, conn: &Connection) -> Result<usize> {
        if !has_table(conn)? {
            return Ok(0);
        }
        let mut select = conn.prepare("SELECT sql FROM schema_steps ORDER BY number")?;
        let applied: Vec<String> = select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        match self.0.get(..applied.len()) {
            Some(known) if applied == known => Ok(applied.len()),
            _ => Err(Error::Failed("the schema is of another version of this program".into())),
        }
    }
}

impl Schema for Steps {
    fn refuse_foreign(&self, conn: &Connection) -> Result<()> {
        let is_empty = conn.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
        match is_empty || has_table(conn)? {
            true => Ok(()),
            false => Err(Error::Failed("another program made this database".into())),
        }
    }

    fn is_new(&self, conn: &Connection) -> Result<bool> {
        Ok(self.applied(conn)? == 0)
    }

    fn is_current(&self, conn: &Connection) -> Result<bool> {
        Ok(self.applied(conn)? == self.0.len())
    }

    fn migrate(&self, conn: &mut Connection) -> Result<()> {
        let applied = self.applied(conn)?;
        for (number, sql) in self.0.iter().enumerate().skip(applied) {
            let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute_batch(
                "CREATE TABLE IF NOT EXISTS schema_steps (number INTEGER PRIMARY KEY, sql TEXT NOT NULL)",
            )?;
            transaction.execute_batch(sql)?;
            transaction.execute("INSERT INTO schema_steps VALUES (?1, ?2)", (number as i64, sql))?;
            transaction.commit()?;
        }
        Ok(())
    }

    fn verify(&self, conn: &Connection) -> Result<()> {
        match self.applied(conn)? {
            0 => Err(Error::Failed("this is not a database of this program".into())),
            _ => Ok(()),
        }
    }
}

fn has_table(conn: &Connection) -> Result<bool> {
    let find = "SELECT count(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_steps'";
    Ok(conn.query_row(find, [], |row| row.get(0))?)
}
