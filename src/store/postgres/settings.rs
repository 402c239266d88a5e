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
    pub url: DatabaseUrl,
    /// The expected deployment. A database created for another is rejected.
    pub deployment: Option<Deployment>,
    /// The deployment for a new database if `deployment` is `None`. If `None`, no database is created.
    pub create: Option<Deployment>,
    /// Maximum number of waiting writes of one kind, and of waiting reads. Further ones are rejected.
    pub queue: usize,
    /// Number of a service's connections for reads.
    pub readers: usize,
    pub process: ProcessKind,
    /// Rejects reads and writes unless as many standbys are connected to the server as a commit waits for.
    pub require_standbys: bool,
}

/// Kind of process that uses the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    /// Has a connection for each purpose, so that none delays the others.
    Service,
    /// Ends soon and runs one statement at a time, so one connection is enough. Must not submit writes with idempotency
    /// keys, because their transaction would include the statements of other operations.
    Command,
}

impl Options {
    pub fn new(url: DatabaseUrl) -> Self {
        // Each connection is a process of the server, so this also limits the cores that reads use there.
        let readers = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
        let create = Some(Deployment::Production);
        let process = ProcessKind::Service;
        Self { url, deployment: None, create, queue: 4_096, readers, process, require_standbys: false }
    }

    /// Returns the options of the connections.
    pub fn cluster(&self) -> postgres_group_commit::Options {
        let &Self { queue, process, require_standbys, .. } = self;
        postgres_group_commit::Options {
            application_name: "petstore".into(),
            session: SESSION.into(),
            queue,
            one_connection: process == ProcessKind::Command,
            require_standbys,
            ..postgres_group_commit::Options::new(self.url.clone())
        }
    }
}
