//! The log of an outage: its start, each cause every few minutes, and its end.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::MessageId;

/// Interval of warnings of the same cause. While a message that the receiver never accepts is queued, nothing ends the
/// outage.
const INTERVAL: Duration = Duration::from_mins(5);

/// Maximum number of causes to remember. Others are not logged meanwhile.
const CAUSES: usize = 16;

/// The endpoint will never accept messages again, so the operator has to act.
const GONE: &str = "status 410 Gone";

/// The state of an outage: messages cannot be relayed.
#[derive(Debug, Default)]
pub struct Outage {
    /// When each cause was last logged.
    warned: HashMap<String, Instant>,
}

impl Outage {
    /// Begins or continues, and logs the cause. `id` is the message that was not acknowledged.
    pub fn warn(&mut self, why: &str, id: Option<MessageId>) {
        let id = id.map(tracing::field::display);
        match self.is_warning_due(why) {
            true if why == GONE => tracing::error!(id, why, "the endpoint is gone, messages stay queued; retrying"),
            true => tracing::warn!(id, why, "cannot relay messages, they stay queued; retrying"),
            false => tracing::debug!(id, why, "cannot relay messages, retrying"),
        }
    }

    fn is_warning_due(&mut self, cause: &str) -> bool {
        self.warned.retain(|_, last| last.elapsed() < INTERVAL);
        let is_due = self.warned.len() < CAUSES && !self.warned.contains_key(cause);
        if is_due {
            self.warned.insert(cause.to_owned(), Instant::now());
        }
        is_due
    }

    /// Logs the end if it had begun.
    pub fn end(&mut self) {
        if !std::mem::take(&mut self.warned).is_empty() {
            tracing::info!("relaying messages again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn each_cause_is_logged_at_once_and_every_5_min() {
        let mut outage = Outage::default();
        let mut logged = Vec::new();
        for minute in 0..12 {
            for cause in if minute < 3 { &["500"][..] } else { &["422", "500"] } {
                if outage.is_warning_due(cause) {
                    logged.push((minute, *cause));
                }
            }
            advance(Duration::from_mins(1)).await;
        }
        assert_eq!(logged, [(0, "500"), (3, "422"), (5, "500"), (8, "422"), (10, "500")]);
        outage.end();
        assert!(outage.warned.is_empty() && outage.is_warning_due("500"));
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_logged_causes_is_bounded() {
        let mut outage = Outage::default();
        let due = |outage: &mut Outage| (0..1_000).filter(|n| outage.is_warning_due(&n.to_string())).count();
        assert_eq!(due(&mut outage), CAUSES);
        advance(INTERVAL).await;
        assert_eq!((due(&mut outage), outage.warned.len()), (CAUSES, CAUSES));
    }
}
