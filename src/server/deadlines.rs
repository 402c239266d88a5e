//! Where a connection stands and until when it may stay there.
//!
//! hyper's own header timeout makes and drops a timer for every request. Here the request path only notes the time,
//! and the connection's one timer looks at it when it fires: at most every few seconds.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::Limits;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Waiting for the first byte of a request.
    Idle,
    /// The head of a request has begun to arrive.
    Head,
    /// The request is being answered; its body has a deadline of its own.
    Handling,
    /// The answer is on its way.
    Answering,
    /// The client does not take the answer.
    Blocked,
}

/// Shared between a connection's socket, its service and its timer. All run on one task, so nothing here contends.
#[derive(Debug)]
pub struct Deadlines {
    limits: Limits,
    opened: Instant,
    phase: AtomicU8,
    /// When the phase began, in nanoseconds since `opened`.
    since: AtomicU64,
}

impl Deadlines {
    pub fn new(limits: Limits) -> Self {
        Self { limits, opened: Instant::now(), phase: AtomicU8::new(Phase::Idle as u8), since: AtomicU64::new(0) }
    }

    /// Bytes came in.
    pub fn received(&self) {
        if self.phase() == Phase::Idle {
            self.enter(Phase::Head);
        }
    }

    /// A whole head came in. Returns until when the rest of the request may take.
    pub fn request_began(&self) -> Instant {
        let began = if self.phase() == Phase::Head { self.since() } else { Instant::now() };
        self.phase.store(Phase::Handling as u8, Ordering::Relaxed);
        began + self.limits.request
    }

    pub fn answered(&self) {
        self.phase.store(Phase::Answering as u8, Ordering::Relaxed);
    }

    /// The socket takes no more for now.
    pub fn write_blocked(&self) {
        if self.phase() != Phase::Blocked {
            self.enter(Phase::Blocked);
        }
    }

    /// Everything that was to be written is written.
    pub fn flushed(&self) {
        if matches!(self.phase(), Phase::Answering | Phase::Blocked) {
            self.enter(Phase::Idle);
        }
    }

    /// The phase that has lasted too long, or when to look again.
    pub fn check(&self) -> Result<Instant, Phase> {
        let now = Instant::now();
        let phase = self.phase();
        let Some(limit) = self.limit(phase) else { return Ok(now + self.shortest()) };
        let deadline = self.since() + limit;
        if deadline <= now {
            return Err(phase);
        }
        // Another phase may begin at any moment, and none ends sooner than the shortest limit after it.
        Ok(deadline.min(now + self.shortest()))
    }

    fn limit(&self, phase: Phase) -> Option<Duration> {
        match phase {
            Phase::Idle => Some(self.limits.idle),
            Phase::Head => Some(self.limits.head),
            Phase::Blocked => Some(self.limits.answer),
            Phase::Handling | Phase::Answering => None,
        }
    }

    fn shortest(&self) -> Duration {
        self.limits.idle.min(self.limits.head).min(self.limits.answer)
    }

    fn phase(&self) -> Phase {
        let phase = self.phase.load(Ordering::Relaxed);
        [Phase::Idle, Phase::Head, Phase::Handling, Phase::Answering, Phase::Blocked][usize::from(phase)]
    }

    fn since(&self) -> Instant {
        self.opened + Duration::from_nanos(self.since.load(Ordering::Relaxed))
    }

    fn enter(&self, phase: Phase) {
        let since = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.since.store(since, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            head: Duration::from_millis(20),
            request: Duration::from_secs(1),
            idle: Duration::from_millis(40),
            answer: Duration::from_millis(30),
            connections: 1,
            drain_delay: Duration::ZERO,
        }
    }

    #[test]
    fn each_phase_has_its_own_end() {
        let deadlines = Deadlines::new(limits());
        assert!(deadlines.check().is_ok());
        deadlines.received();
        std::thread::sleep(Duration::from_millis(25));
        deadlines.received();
        assert_eq!(deadlines.check(), Err(Phase::Head), "more bytes of the same head don't start its time anew");
        deadlines.request_began();
        assert!(deadlines.check().is_ok(), "a request that is being answered has no deadline here");
        deadlines.answered();
        deadlines.write_blocked();
        std::thread::sleep(Duration::from_millis(35));
        deadlines.write_blocked();
        assert_eq!(deadlines.check(), Err(Phase::Blocked), "a byte now and then is not progress");
        deadlines.flushed();
        assert!(deadlines.check().is_ok());
        std::thread::sleep(Duration::from_millis(45));
        assert_eq!(deadlines.check(), Err(Phase::Idle));
    }
}
