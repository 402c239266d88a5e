//! Where a connection stands and until when it may stay there.
//!
//! hyper's own header timeout makes and drops a timer for every request. Here the request path only notes the time,
//! and the connection's one timer looks at it when it fires: at most every few seconds.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
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
    phase: AtomicU8,
    /// When the phase began, in nanoseconds of the coarse clock.
    since: AtomicU64,
    /// Whether the request has a body that was not read to its end.
    unread: AtomicBool,
}

impl Deadlines {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            phase: AtomicU8::new(Phase::Idle as u8),
            since: AtomicU64::new(coarse_now()),
            unread: AtomicBool::new(false),
        }
    }

    /// Notes that bytes arrived. Returns whether they are the first of a request.
    pub fn received(&self) -> bool {
        let first = self.phase() == Phase::Idle;
        if first {
            self.enter(Phase::Head);
        }
        first
    }

    /// A whole head came in. Returns how long the rest of the request may take.
    pub fn request_began(&self) -> Duration {
        let taken = if self.phase() == Phase::Head { self.lasted() } else { Duration::ZERO };
        self.phase.store(Phase::Handling as u8, Ordering::Relaxed);
        self.limits.request.saturating_sub(taken)
    }

    pub fn body_began(&self) {
        self.unread.store(true, Ordering::Relaxed);
    }

    pub fn body_ended(&self) {
        self.unread.store(false, Ordering::Relaxed);
    }

    /// Returns whether the connection can take another request: not where a body was left unread.
    pub fn answered(&self) -> bool {
        self.phase.store(Phase::Answering as u8, Ordering::Relaxed);
        !self.unread.load(Ordering::Relaxed)
    }

    /// The socket takes no more for now.
    pub fn write_blocked(&self) {
        if self.phase() != Phase::Blocked {
            self.enter(Phase::Blocked);
        }
    }

    /// The socket has taken an answer, but could not pass all of it on for now.
    pub fn flush_blocked(&self) {
        if self.phase() == Phase::Answering {
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
        let left = limit.saturating_sub(self.lasted());
        if left.is_zero() {
            return Err(phase);
        }
        // Another phase may begin at any moment, and none ends sooner than the shortest limit after it.
        Ok(now + left.min(self.shortest()))
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

    /// How long the phase has lasted.
    fn lasted(&self) -> Duration {
        Duration::from_nanos(coarse_now().saturating_sub(self.since.load(Ordering::Relaxed)))
    }

    fn enter(&self, phase: Phase) {
        self.since.store(coarse_now(), Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}

/// The monotonic clock as of the last tick (at most 10 ms ago), in nanoseconds: a quarter of what the exact time costs,
/// which the request path asks for twice.
fn coarse_now() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
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
        deadlines.request_began();
        deadlines.flush_blocked();
        assert!(deadlines.check().is_ok(), "what is left of the answer before does not count against this one");
        deadlines.answered();
        deadlines.flush_blocked();
        std::thread::sleep(Duration::from_millis(35));
        assert_eq!(deadlines.check(), Err(Phase::Blocked), "an answer that only TLS has taken was not read");
        deadlines.flushed();
        assert!(deadlines.check().is_ok());
        std::thread::sleep(Duration::from_millis(45));
        assert_eq!(deadlines.check(), Err(Phase::Idle));
    }
}
