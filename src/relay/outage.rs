//! The log of an outage: its start, its cause every few minutes, and its end.

use std::time::Duration;

use tokio::time::Instant;

/// Interval of warnings. While a message that the receiver never accepts is queued, nothing ends the outage, and a later
/// cause would not be logged without them.
const INTERVAL: Duration = Duration::from_mins(5);

/// The state of an outage: messages cannot be relayed.
#[derive(Debug, Default)]
pub struct Outage {
    warned: Option<Instant>,
}

impl Outage {
    pub const fn has_begun(&self) -> bool {
        self.warned.is_some()
    }

    /// Begins or continues. Returns whether to log a warning.
    pub fn is_warning_due(&mut self) -> bool {
        let is_due = self.warned.is_none_or(|last| last.elapsed() >= INTERVAL);
        if is_due {
            self.warned = Some(Instant::now());
        }
        is_due
    }

    /// Returns whether it had begun.
    pub const fn end(&mut self) -> bool {
        self.warned.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn lasting_outage_is_logged_every_5_min() {
        let mut outage = Outage::default();
        assert!(!outage.end());
        let mut minutes = Vec::new();
        for minute in 0..12 {
            if outage.is_warning_due() {
                minutes.push(minute);
            }
            advance(Duration::from_mins(1)).await;
        }
        assert_eq!(minutes, [0, 5, 10]);
        assert!(outage.end() && !outage.has_begun() && outage.is_warning_due());
    }
}
