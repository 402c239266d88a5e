//! Two PostgreSQL servers: a primary and its synchronous standby.

use testkit::{PostgresServer, TIMEOUT, within};

/// The servers change places at each fail-over. Their addresses stay the same.
pub struct PostgresPair {
    primary: PostgresServer,
    standby: Option<PostgresServer>,
    url: String,
}

impl PostgresPair {
    pub fn start() -> Self {
        let primary = PostgresServer::start();
        let url = primary.database();
        // Before the standby copies its settings, so that it waits for a standby too once it is promoted.
        primary.set("synchronous_standby_names", "*");
        let standby = primary.standby();
        let (first, name) = url.rsplit_once('/').unwrap();
        let url = format!("{first},127.0.0.1:{}/{name}?target_session_attrs=read-write", standby.port());
        let pair = Self { primary, standby: Some(standby), url };
        pair.wait_for_standby();
        pair
    }

    /// The URL of a database, with both servers. psql connects to the primary too.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops the primary without a checkpoint, promotes the standby, and replaces the old primary by a standby.
    pub fn fail_over(&mut self) {
        self.primary.control(&["stop", "-m", "immediate"]);
        let promoted = self.standby.take().expect("there is a standby");
        promoted.control(&["promote"]);
        let port = self.primary.port();
        // Dropping the old primary frees its port.
        self.primary = promoted;
        self.standby = Some(self.primary.standby_at(port));
        self.wait_for_standby();
    }

    /// Writes wait for the standby.
    fn wait_for_standby(&self) {
        let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        within(TIMEOUT, "streaming", || self.primary.sql("postgres", synchronous) == "1");
    }
}
