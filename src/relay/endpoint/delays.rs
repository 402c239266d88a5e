//! When the endpoint, and messages that it rejected, are tried again. Kept in memory only.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::domain::MessageId;

/// Minimum and maximum.
type Range = (Duration, Duration);

/// Range of pauses of the endpoint. [`Backoff`] subtracts up to half, so the shortest is 1 s.
const PAUSE: Range = (Duration::from_secs(2), Duration::from_mins(5));

/// Range of pauses that the endpoint may demand.
const DEMANDED: Range = (Duration::from_secs(1), Duration::from_hours(1));

/// Range of delays of a message that the endpoint rejected. The shortest is 1 min.
const DELAY: Range = (Duration::from_mins(2), Duration::from_hours(1));

/// Maximum number of delayed messages.
const CAPACITY: usize = 4_096;

#[derive(Debug)]
pub struct Delays {
    pause: Backoff,
    paused_until: Option<Instant>,
    messages: HashMap<MessageId, Delay>,
}

#[derive(Debug)]
struct Delay {
    /// Why the message is delayed: [`PAUSE`] or [`DELAY`].
    range: Range,
    /// Attempts that failed for this reason.
    attempts: u32,
    until: Instant,
}

impl Default for Delays {
    fn default() -> Self {
        Self { pause: Backoff::new(PAUSE.0, PAUSE.1), paused_until: None, messages: HashMap::new() }
    }
}

impl Delays {
    pub fn is_paused(&self) -> bool {
        self.paused_until.is_some_and(|until| Instant::now() < until)
    }

    pub fn is_delayed(&self, id: MessageId) -> bool {
        self.messages.get(&id).is_some_and(|delay| Instant::now() < delay.until)
    }

    pub fn acknowledged(&mut self, id: MessageId) {
        self.pause = Backoff::new(PAUSE.0, PAUSE.1);
        self.messages.remove(&id);
    }

    /// Pauses the endpoint for the time that it demands. Without one, the message may be the reason of the failure, so it is
    /// delayed too, and others overtake it.
    pub fn endpoint_failed(&mut self, id: MessageId, demanded: Option<Duration>) {
        self.pause(demanded);
        if demanded.is_none() {
            self.attempt_failed(id);
        }
    }

    /// Delays only this message, as long as a failure of the endpoint would.
    pub fn attempt_failed(&mut self, id: MessageId) {
        self.delay(id, PAUSE);
    }

    /// Delays only this message. Pauses the endpoint if too many are delayed.
    pub fn message_rejected(&mut self, id: MessageId) {
        if !self.delay(id, DELAY) {
            self.pause(None);
        }
    }

    fn pause(&mut self, demanded: Option<Duration>) {
        let pause = match demanded {
            Some(demanded) => demanded.clamp(DEMANDED.0, DEMANDED.1),
            // Deliveries that run at the same time fail for the same reason.
            None if self.is_paused() => return,
            None => self.pause.next_delay(),
        };
        self.paused_until = self.paused_until.max(Some(Instant::now() + pause));
    }

    /// Returns false if there is no space.
    fn delay(&mut self, id: MessageId, range: Range) -> bool {
        let now = Instant::now();
        if self.messages.len() >= CAPACITY {
            // Messages that were deleted are not tried again.
            self.messages.retain(|_, delay| now < delay.until + DELAY.1);
        }
        if self.messages.len() >= CAPACITY && !self.messages.contains_key(&id) {
            return false;
        }
        let known = self.messages.get(&id).filter(|delay| delay.range == range);
        let attempts = known.map_or(0, |delay| delay.attempts);
        let until = now + Backoff::after(range.0, range.1, attempts).next_delay();
        self.messages.insert(id, Delay { range, attempts: attempts + 1, until });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const ID: MessageId = MessageId::from_bytes([1; 16]);

    fn ids(count: usize) -> impl Iterator<Item = MessageId> {
        (0..count as u128).map(|number| MessageId::from_bytes(number.to_be_bytes()))
    }

    /// Advances until `holds` is false, and returns the time that took.
    async fn lasts(holds: impl Fn() -> bool) -> Duration {
        let began = Instant::now();
        while holds() {
            advance(Duration::from_millis(100)).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_from_1_s_to_5_min() {
        let mut delays = Delays::default();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            for id in ids(16) {
                delays.endpoint_failed(id, None);
            }
            pauses.push(lasts(|| delays.is_paused()).await.as_secs());
        }
        assert!((1..=2).contains(&pauses[0]) && (8..=16).contains(&pauses[3]), "{pauses:?}");
        assert!(pauses[9..].iter().all(|pause| (150..=300).contains(pause)), "{pauses:?}");
        delays.acknowledged(ID);
        delays.endpoint_failed(ID, None);
        assert!(lasts(|| delays.is_paused()).await <= Duration::from_millis(2_100));
    }

    #[tokio::test(start_paused = true)]
    async fn endpoint_may_demand_up_to_an_hour() {
        let mut delays = Delays::default();
        for (demanded, expected) in [(0, 1), (40, 40), (3_600, 3_600), (u64::MAX, 3_600)] {
            delays.endpoint_failed(ID, None);
            delays.endpoint_failed(ID, Some(Duration::from_secs(demanded)));
            delays.endpoint_failed(ID, None);
            assert!(lasts(|| delays.is_paused()).await.as_secs().abs_diff(expected) <= 2, "{demanded}");
            delays.acknowledged(ID);
        }
        delays.endpoint_failed(ID, Some(Duration::from_secs(1)));
        assert!(delays.is_paused() && !delays.is_delayed(ID), "the message is not the reason");
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_messages_are_delayed_alone_from_1_min_to_1_h() {
        let mut delays = Delays::default();
        let mut seconds = Vec::new();
        for _ in 0..8 {
            delays.message_rejected(ID);
            assert!(!delays.is_paused());
            seconds.push(lasts(|| delays.is_delayed(ID)).await.as_secs());
        }
        assert!((60..=120).contains(&seconds[0]) && (120..=240).contains(&seconds[1]), "{seconds:?}");
        assert!((1_800..=3_600).contains(&seconds[7]), "{seconds:?}");
        delays.endpoint_failed(ID, None);
        assert!(lasts(|| delays.is_delayed(ID)).await.as_secs() <= 2, "another reason");
    }

    #[tokio::test(start_paused = true)]
    async fn endpoint_pauses_if_too_many_messages_are_delayed() {
        let mut delays = Delays::default();
        ids(CAPACITY).for_each(|id| delays.message_rejected(id));
        assert!(!delays.is_paused());
        delays.message_rejected(ID);
        assert!(delays.is_paused() && !delays.is_delayed(ID));
        assert_eq!(delays.messages.len(), CAPACITY);
        // The delayed messages were deleted.
        advance(DELAY.1 * 2).await;
        delays.message_rejected(ID);
        assert!(delays.is_delayed(ID));
        assert_eq!(delays.messages.len(), 1);
    }
}
