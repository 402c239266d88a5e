//! The connection that writes.

use std::cell::RefCell;
use std::ops::Deref;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, Statement};

/// The writer's connection, with the statements that jobs repeat. It dereferences to rusqlite's `Connection`.
pub struct WriteConnection<'c> {
    conn: &'c Connection,
    statements: RefCell<Vec<(&'static str, CachedStatement<'c>)>>,
}

impl<'c> WriteConnection<'c> {
    #[doc(hidden)] // for simulations
    pub fn new(conn: &'c Connection) -> Self {
        Self { conn, statements: RefCell::default() }
    }

    /// Runs a statement that jobs repeat. It stays prepared for as long as the writer runs, because a lookup in the
    /// connection's cache costs a tenth of an insertion. Returns the number of rows that it changed.
    ///
    /// # Errors
    ///
    /// SQLite's.
    ///
    /// # Panics
    ///
    /// Panics if it is called while another repeated statement runs.
    pub fn execute(&self, sql: &'static str, params: impl Params) -> rusqlite::Result<usize> {
        self.prepared(sql, |statement| statement.execute(params))
    }

    /// Runs a statement like [`Self::execute`], and reads its first row. `None` if it returns no row.
    ///
    /// # Errors
    ///
    /// SQLite's, and those of `read`.
    pub fn find<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.prepared(sql, |statement| statement.query_row(params, read).optional())
    }

    /// Runs an insertion like [`Self::execute`], whose parameters `bind` sets.
    ///
    /// # Errors
    ///
    /// SQLite's, and those of `bind`.
    pub fn add(
        &self,
        sql: &'static str,
        bind: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        self.prepared(sql, |statement| {
            bind(statement)?;
            statement.raw_execute().map(drop)
        })
    }

    fn prepared<T>(
        &self,
        sql: &'static str,
        run: impl FnOnce(&mut CachedStatement<'c>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let mut statements = self.statements.borrow_mut();
        let position = match statements.iter().position(|(known, _)| *known == sql) {
            Some(position) => position,
            None => {
                statements.push((sql, self.conn.prepare_cached(sql)?));
                statements.len() - 1
            }
        };
        run(&mut statements[position].1)
    }
}

impl Deref for WriteConnection<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.conn
    }
}
