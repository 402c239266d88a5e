//! Rows that many requests add, which the writer adds with one statement for several jobs.

use rusqlite::Statement;

use super::connection::WriteConnection;
use super::job::{AnyJob, Insert, Write, run_statement};
use crate::Result;
use crate::history::Effect;

/// Number of rows that one statement adds.
pub const ROWS: usize = 8;

/// A row that many tasks add. The writer adds [`ROWS`] of them with one statement. If that is refused, it adds them one by one.
///
/// SQLite must choose the rowids, and no row may be ignored, by the statements (`OR IGNORE`) or the table (`ON CONFLICT`,
/// `RAISE(IGNORE)`): the writer counts the rowids back from the last one.
pub trait NewRow: Sized + Send + 'static {
    /// The statements that add the row.
    const INSERT: Insert;
    /// The effect of adding the row.
    const EFFECT: Effect;
    /// The result of the write.
    type Added: Send + 'static;

    /// Binds the columns to the parameters of a statement, from the number `first` on.
    ///
    /// # Errors
    ///
    /// SQLite's.
    fn bind(&self, statement: &mut Statement<'_>, first: usize) -> rusqlite::Result<()>;

    /// Returns the result of the write. `rowid` is meaningless if the table has none.
    fn added(self, rowid: i64) -> Self::Added;

    /// Adds the row alone, within another job. One of your own must be a single statement.
    ///
    /// # Errors
    ///
    /// SQLite's, such as a constraint that the row violates. As a job, one of your own that fails after its statement gets
    /// [`Error::Unknown`](crate::Error::Unknown).
    fn insert(self, conn: &WriteConnection<'_>) -> Result<Self::Added> {
        conn.add(Self::INSERT.one, |statement| self.bind(statement, 1))?;
        Ok(self.added(conn.last_insert_rowid()))
    }
}

/// Adds the row as a job.
pub struct Row<R>(pub R);

impl<R: NewRow> Write for Row<R> {
    type Output = R::Added;
    const INSERT: Option<&'static Insert> = Some(&R::INSERT);

    fn run(self, conn: &WriteConnection<'_>) -> Result<Result<R::Added>> {
        Ok(run_statement(conn, |conn| self.0.insert(conn)))
    }

    fn bind(&self, statement: &mut Statement<'_>, first: usize) -> rusqlite::Result<()> {
        self.0.bind(statement, first)
    }

    fn added(self, rowid: i64) -> Option<R::Added> {
        Some(self.0.added(rowid))
    }
}

/// Runs the jobs of a batch. Those that add rows to the same table, one after another, share a statement.
pub fn run(conn: &WriteConnection<'_>, mut jobs: &mut [Box<dyn AnyJob>]) -> Result<()> {
    while let Some(first) = jobs.first() {
        let insert = first.insert();
        let alike = match insert {
            Some(insert) => jobs.iter().take(ROWS).take_while(|job| job.insert() == Some(insert)).count(),
            None => 1,
        };
        let (now, later) = jobs.split_at_mut(alike);
        let together = insert.filter(|_| alike == ROWS);
        if !together.map_or(Ok(false), |insert| add(conn, insert, now))? {
            now.iter_mut().try_for_each(|job| job.run(conn))?;
        }
        jobs = later;
    }
    Ok(())
}

/// Adds the rows of `jobs`. Returns whether they were added: if one of them is refused, none is.
fn add(conn: &WriteConnection<'_>, insert: &Insert, jobs: &mut [Box<dyn AnyJob>]) -> Result<bool> {
    let added = conn.add(insert.several, |statement| {
        let parameters = statement.parameter_count();
        debug_assert_eq!(parameters % ROWS, 0, "{}", insert.several);
        jobs.iter().zip((1..).step_by(parameters / ROWS)).try_for_each(|(job, first)| job.bind(statement, first))
    });
    match added {
        Ok(()) => {
            // A statement gives its rows consecutive numbers.
            let last = conn.last_insert_rowid();
            jobs.iter_mut().rev().zip(0..).for_each(|(job, before)| job.added(last - before));
            Ok(true)
        }
        Err(error) if conn.is_autocommit() => Err(error.into()),
        Err(_) => Ok(false),
    }
}
