//! Writes that share a batch, and may have idempotency keys.

use tokio_postgres::Error;

use crate::store::Outcome;
use postgres_group_commit::PreparedConnection;

/// A write that shares a statement with other writes of its type.
pub trait Write: Clone + Send + Sync + 'static {
    type Output: Clone + Send + Sync + 'static;
    /// Why the write may not be possible.
    type Refusal: Send + Sync + 'static;

    /// Maximum number of writes with keys per batch.
    ///
    /// Each key takes a lock from a table of the server, which has room for 6,400 by default.
    const KEYED_BATCH: usize = 128;

    /// The statements of `run`, which are prepared when the connection opens.
    const STATEMENTS: &[&str];

    /// Approximate number of bytes that the write adds to a statement.
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    /// Carries out the writes, several in one statement. Returns their results in order.
    fn run(
        prepared: &PreparedConnection,
        writes: Vec<Self>,
    ) -> impl Future<Output = Result<Vec<WriteResult<Self>>, Error>> + Send;
}

pub type WriteResult<W> = Result<<W as Write>::Output, <W as Write>::Refusal>;

pub type WriteOutcome<W> = Outcome<<W as Write>::Output, <W as Write>::Refusal>;
