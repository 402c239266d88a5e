//! The log of an outage.

/// Logs the start and the end of an outage. Repeated failures are logged at level debug.
#[derive(Debug, Default)]
pub struct OutageLog {
    has_begun: bool,
}

impl OutageLog {
    pub fn report(&mut self, why: &str) {
        if self.has_begun {
            tracing::debug!(why, "cannot relay messages, retrying");
        } else {
            tracing::warn!(why, "cannot relay messages, they stay queued; retrying");
            self.has_begun = true;
        }
    }

    pub fn end(&mut self) {
        if self.has_begun {
            tracing::info!("relaying messages again");
            self.has_begun = false;
        }
    }
}
