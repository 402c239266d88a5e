//! Writes that share a batch.

use crate::connect::connection::PreparedConnection;

/// A write that shares a statement, or a transaction, with other writes of its type.
pub trait Write: Send + Sized + 'static {
    /// The outcome of the write. One that was not possible is an outcome, too.
    type Output: Send + 'static;

    /// Maximum number of writes in a batch, at least 1. Bounds the wait of the first write.
    const BATCH: usize = 512;

    /// The statements of [`Write::run`], which are prepared when the connection opens.
    fn statements() -> Vec<&'static str>;

    /// Approximate number of bytes that the write adds to a statement, with those of its texts. A batch accepts no further
    /// writes after 1 MiB.
    fn bytes(&self) -> usize;

    /// Carries out the writes of a batch and returns their outcomes, in order. SQL promises no order of the rows of `RETURNING`:
    /// match them to the writes by a column, or insert by `unnest(…) WITH ORDINALITY ORDER BY ordinality`.
    ///
    /// Best with one statement, so that no transaction is open between two round trips. If there are several, `run` begins
    /// and commits a transaction, and rolls it back before it fails. It ignores no error of a statement, after which PostgreSQL
    /// rolls back at `COMMIT` without an error. No other statement runs on the connection meanwhile,
    /// except the check of the server.
    ///
    /// # Errors
    ///
    /// Fails with the error of PostgreSQL. All writes of the batch then fail. After a panic, they are unknown, and the connection
    /// is replaced.
    fn run(
        prepared: &PreparedConnection,
        writes: Vec<Self>,
    ) -> impl Future<Output = Result<Vec<Self::Output>, tokio_postgres::Error>> + Send;
}
