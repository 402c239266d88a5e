//! The connections that a process maintains.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::connect::connection::Connector;
use super::connect::settings::ProcessKind;
use super::supervisor::Supervisor;
use crate::store::Result;

/// Opens and closes the connections of a process.
#[derive(Debug)]
pub struct Connections {
    pub connector: Connector,
    /// Connection shared by all operations of a command.
    shared: Option<Arc<Supervisor>>,
    /// A service's connections, with their purposes.
    opened: Mutex<Vec<(&'static str, Arc<Supervisor>)>>,
}

impl Connections {
    pub async fn new(connector: Connector, process: ProcessKind) -> Result<Self> {
        let shared = match process {
            ProcessKind::Service => None,
            ProcessKind::Command => Some(Arc::new(Supervisor::open(&connector, Vec::new(), "command").await?)),
        };
        Ok(Self { connector, shared, opened: Mutex::default() })
    }

    /// Returns a connection for a purpose, which the log and the metrics name. A service opens one on which `statements` are
    /// prepared. A command shares one, and prepares only what it runs.
    pub async fn open(&self, statements: &[&'static str], purpose: &'static str) -> Result<Arc<Supervisor>> {
        if let Some(shared) = &self.shared {
            return Ok(Arc::clone(shared));
        }
        let opened = Arc::new(Supervisor::open(&self.connector, statements.to_vec(), purpose).await?);
        self.opened.lock().push((purpose, Arc::clone(&opened)));
        Ok(opened)
    }

    /// Returns for each connection of a service its purpose and whether it is up.
    pub fn are_up(&self) -> Vec<(&'static str, bool)> {
        self.opened.lock().iter().map(|(purpose, connection)| (*purpose, connection.is_up())).collect()
    }

    /// Waits until each purpose has a connection that is up. Fails at once if the last attempt to reconnect failed.
    pub async fn wait_for_each(&self, deadline: Instant) -> Result<()> {
        let opened = self.opened.lock().clone();
        for (purpose, connection) in &opened {
            // One of several, as for reads, suffices.
            if !opened.iter().any(|(other, connection)| other == purpose && connection.is_up()) {
                connection.connection(deadline).await?;
            }
        }
        Ok(())
    }

    pub fn close(&self) {
        self.shared.iter().for_each(|shared| shared.close());
        self.opened.lock().iter().for_each(|(_, connection)| connection.close());
    }
}
