//! Settings of a PostgreSQL database.

use crate::domain::Deployment;
use postgres_group_commit::DatabaseUrl;

/// Plans are made once and use indexes: with them it does not matter how large a table was when its plan was made.
/// `enable_seqscan = off` adds 10^10 to the estimated cost of any plan that has to read a table, such as the one that
/// deletes ended sessions. PostgreSQL would compile those with LLVM, which can take seconds on a busy machine.
const SESSION: &str =
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off;
    LISTEN petstore_keys";

/// Location and limits of a database.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server and the use of its connections.
    pub cluster: postgres_group_commit::Options,
    /// The expected deployment. A database created for another is rejected.
    pub deployment: Option<Deployment>,
    /// The deployment for a new database if `deployment` is `None`. If `None`, no database is created.
    pub create: Option<Deployment>,
    /// Number of a service's connections for reads.
    pub readers: usize,
}

impl Options {
    /// Options of a service, which has a connection for each purpose, so that none delays the others.
    pub fn new(url: DatabaseUrl) -> Self {
        // Each connection is a process of the server, so this also limits the cores that reads use there.
        let readers = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
        let cluster = postgres_group_commit::Options {
            application_name: "petstore".into(),
            session: SESSION.into(),
            ..postgres_group_commit::Options::new(url)
        };
        Self { cluster, deployment: None, create: Some(Deployment::Production), readers }
    }

    /// Options of a command, which ends soon and runs one statement at a time, so one connection is enough. It must not submit
    /// writes with idempotency keys, because their transaction would include the statements of other operations.
    pub fn of_command(url: DatabaseUrl) -> Self {
        let mut options = Self::new(url);
        options.cluster.one_connection = true;
        options
    }
}
