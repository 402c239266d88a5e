//! Settings of a cluster.

use super::url::DatabaseUrl;

/// Location of a database, and how to use it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Servers, database, credentials, TLS, and the timeout of operations.
    pub url: DatabaseUrl,
    /// Name of the sessions in `pg_stat_activity`, unless the URL has its own `application_name`. Empty by default.
    pub application_name: String,
    /// Statements that configure each connection on which others are prepared, such as `SET` and `LISTEN`, separated by
    /// semicolons. They must leave `synchronous_commit` and `client_min_messages` as they are. None by default.
    pub session: String,
    /// Maximum number of waiting writes of a queue, and of waiting reads. Further ones fail with
    /// [`Error::Unavailable`](crate::Error::Unavailable). 4,096 by default; at least 1.
    pub queue: usize,
    /// Uses one connection for everything, and prepares a statement whenever it runs: for a program that ends soon and runs
    /// one statement at a time. A [`Write`](crate::Write) must not begin a transaction then, because that would include the
    /// statements of others. False by default.
    pub one_connection: bool,
    /// Rejects a server unless as many standbys are connected to it as a commit waits for, so that an isolated primary serves
    /// no reads. False by default.
    pub require_standbys: bool,
}

impl Options {
    /// The defaults for a database.
    pub const fn new(url: DatabaseUrl) -> Self {
        Self {
            url,
            application_name: String::new(),
            session: String::new(),
            queue: 4_096,
            one_connection: false,
            require_standbys: false,
        }
    }
}
