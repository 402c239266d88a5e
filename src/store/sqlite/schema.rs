//! petstore's schema, as `sqlite-group-commit` needs it.

use std::cell::RefCell;

use rusqlite::Connection;
use sqlite_group_commit::{Error, Result, Schema};

use super::{migrations, rows};
use crate::domain::Deployment;
use crate::store::transaction::at_once;
use crate::store::{self, StoreError, deployment, keys};

/// petstore's schema, for one deployment or any.
#[derive(Debug)]
pub struct PetstoreSchema {
    expected: Option<Deployment>,
    /// Deployment of a new database.
    create: Option<Deployment>,
    /// Deployment and id of the database that was opened or verified last.
    found: RefCell<Option<(Deployment, String)>>,
}

impl PetstoreSchema {
    /// Accepts databases of `expected` only, if it is set. A new database is for it, or for `create`.
    pub fn new(expected: Option<Deployment>, create: Option<Deployment>) -> Self {
        Self { expected, create: create.map(|create| expected.unwrap_or(create)), found: RefCell::default() }
    }

    /// Returns the deployment and the id of the database that was opened or verified last.
    pub fn found(&self) -> (Deployment, String) {
        self.found.take().expect("a database was opened or verified")
    }

    fn find(&self, conn: &Connection) -> store::Result<()> {
        let deployment = at_once(deployment::stored(conn, self.expected))?;
        self.found.replace(Some((deployment, at_once(deployment::id(conn))?)));
        Ok(())
    }
}

impl Schema for PetstoreSchema {
    fn refuse_foreign(&self, conn: &Connection) -> Result<()> {
        Ok(migrations::refuse_foreign(conn)?)
    }

    fn is_new(&self, conn: &Connection) -> Result<bool> {
        Ok(migrations::history(conn)?.is_empty())
    }

    fn is_current(&self, conn: &Connection) -> Result<bool> {
        Ok(migrations::status(conn)?.iter().all(|migration| migration.applied))
    }

    fn migrate(&self, conn: &mut Connection) -> Result<()> {
        migrations::run(conn, self.create)?;
        Ok(self.find(conn)?)
    }

    fn require_current(&self, conn: &Connection) -> Result<()> {
        migrations::refuse_other(conn)?;
        if !self.is_current(conn)? {
            let why = "its schema is older than this program, and the disk takes no migration";
            return Err(Error::Unavailable(why.into()));
        }
        Ok(self.find(conn)?)
    }

    fn verify(&self, conn: &Connection) -> Result<()> {
        migrations::verify(conn)?;
        keys::version(rows::first(conn, keys::VERSION.sqlite, [])?)?;
        Ok(self.find(conn)?)
    }

    fn may_replace(&self, old: &Connection) -> Result<()> {
        match (self.expected, &*self.found.borrow(), at_once(deployment::stored(old, None))) {
            (None, Some((new, _)), Ok(old)) if old != *new => Err(StoreError::Failed(format!(
                "the backup is of a {new} database and would replace a {old} one; nothing was replaced. If that is what \
                 you want, add --deployment {new}"
            ))
            .into()),
            _ => Ok(()),
        }
    }
}
