//! The phase of a connection and its deadline.
//!
//! hyper's own header timeout creates and drops a timer for every request. Here the request path only stores the time, and
//! the connection's single timer checks it when it fires, at most every few seconds.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use super::Limits;
use super::connection::HEAD_BYTES;
use super::counters::Expired;
use super::request_line::RequestLine;

/// Bytes that a client must take within [`Limits::answer`] to get as much time again: 2 kB/s by default.
const PROGRESS: usize = 64 * 1024;

/// The activity of a connection, which determines its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Waiting for the first byte of a request. The first, because a new connection has phase 0.
    Idle,
    /// The head of a request has begun to arrive.
    Head,
    /// The request is being handled. Its body has a deadline of its own.
    Handling,
    /// The response is being sent.
    Answering,
    /// The client does not take the response.
    Blocked,
}

/// Shared by a connection's socket, service and timer. All run in one task, so nothing here contends.
#[derive(Debug, Default)]
pub struct Deadlines {
    limits: Limits,
    phase: AtomicU8,
    /// When the phase began, in nanoseconds of the coarse clock.
    since: AtomicU64,
    /// Bytes of the response that the client took since then, while it is blocked.
    taken: AtomicUsize,
    /// Bytes that arrived since the end of the last head, or since the connection was idle.
    arrived: AtomicUsize,
    /// True if the request has a body that was not read to the end.
    unread: AtomicBool,
    /// True once the service has given the whole response.
    is_complete: AtomicBool,
    /// The line of the next request, or of the last one.
    pub request_line: RequestLine,
}

impl Deadlines {
    pub fn new(limits: Limits) -> Self {
        Self { limits, since: AtomicU64::new(coarse_now()), ..Self::default() }
    }

    /// Records that bytes arrived. Returns whether they are the first of a request.
    ///
    /// # Errors
    ///
    /// Fails if the body of a request takes too many bytes.
    #[inline]
    pub fn received(&self, bytes: usize) -> io::Result<bool> {
        if self.phase() == Phase::Idle {
            self.arrived.store(bytes, Ordering::Relaxed);
            self.enter(Phase::Head);
            return Ok(true);
        }
        self.arrived.store(self.arrived.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        match self.is_body_too_large() {
            true => Err(io::ErrorKind::InvalidData.into()),
            false => Ok(false),
        }
    }

    #[inline]
    pub fn is_body_too_large(&self) -> bool {
        self.arrived.load(Ordering::Relaxed) > self.limits.body.max(HEAD_BYTES)
    }

    /// Records that a whole head arrived. Returns how long the rest of the request may take.
    #[inline]
    pub fn request_began(&self) -> Duration {
        let taken = if self.phase() == Phase::Head { self.lasted() } else { Duration::ZERO };
        self.arrived.store(0, Ordering::Relaxed);
        self.is_complete.store(false, Ordering::Relaxed);
        self.phase.store(Phase::Handling as u8, Ordering::Relaxed);
        self.limits.request.saturating_sub(taken)
    }

    /// Records whether the body of the request has begun but not ended.
    #[inline]
    pub fn set_unread(&self, unread: bool) {
        self.unread.store(unread, Ordering::Relaxed);
    }

    /// Returns whether the connection can take another request. It cannot after an unread body.
    #[inline]
    pub fn answered(&self) -> bool {
        self.phase.store(Phase::Answering as u8, Ordering::Relaxed);
        !self.unread.load(Ordering::Relaxed)
    }

    /// Records that the service has given all of the response.
    #[inline]
    pub fn completed(&self) {
        self.is_complete.store(true, Ordering::Relaxed);
    }

    /// Records that the socket accepts no more bytes for now. While a request is handled, these are of the previous response
    /// or ask for the body (100).
    #[inline]
    pub fn write_blocked(&self) {
        if !matches!(self.phase(), Phase::Blocked | Phase::Handling) {
            self.enter(Phase::Blocked);
        }
    }

    /// Records that the socket has accepted bytes. A client that keeps taking them has time for more.
    #[inline]
    pub fn wrote(&self, bytes: usize) {
        if self.phase() == Phase::Blocked {
            let taken = self.taken.load(Ordering::Relaxed) + bytes;
            if taken >= PROGRESS {
                self.enter(Phase::Blocked);
            } else {
                self.taken.store(taken, Ordering::Relaxed);
            }
        }
    }

    /// Records that the socket has accepted a response, but not passed all of it on.
    #[inline]
    pub fn flush_blocked(&self) {
        if self.phase() == Phase::Answering {
            self.enter(Phase::Blocked);
        }
    }

    /// Returns whether nothing of a next request has arrived.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.phase() == Phase::Idle
    }

    /// Records that everything was written. More follows if the service has not given all of the response.
    #[inline]
    pub fn flushed(&self) {
        if matches!(self.phase(), Phase::Answering | Phase::Blocked) {
            self.enter(if self.is_complete.load(Ordering::Relaxed) { Phase::Idle } else { Phase::Answering });
        }
    }

    /// Returns when to check again.
    ///
    /// # Errors
    ///
    /// Fails if the phase has exceeded its limit.
    pub fn check(&self) -> Result<Instant, Expired> {
        let now = Instant::now();
        let (limit, expired) = match self.phase() {
            Phase::Idle => (self.limits.idle, Expired::Idle),
            Phase::Head => (self.limits.head, Expired::Head),
            Phase::Blocked => (self.limits.answer, Expired::Answer),
            Phase::Handling | Phase::Answering => return Ok(now + self.shortest()),
        };
        let left = limit.saturating_sub(self.lasted());
        if left.is_zero() {
            return Err(expired);
        }
        // Another phase may begin at any moment, and lasts at least the shortest limit.
        Ok(now + left.min(self.shortest()))
    }

    #[inline]
    fn shortest(&self) -> Duration {
        self.limits.idle.min(self.limits.head).min(self.limits.answer)
    }

    #[inline]
    fn phase(&self) -> Phase {
        let phase = self.phase.load(Ordering::Relaxed);
        [Phase::Idle, Phase::Head, Phase::Handling, Phase::Answering, Phase::Blocked][usize::from(phase)]
    }

    /// Returns the time since the phase began.
    #[inline]
    fn lasted(&self) -> Duration {
        Duration::from_nanos(coarse_now().saturating_sub(self.since.load(Ordering::Relaxed)))
    }

    #[inline]
    fn enter(&self, phase: Phase) {
        self.since.store(coarse_now(), Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}

/// Returns the monotonic clock at the last tick, at most 10 ms ago, in nanoseconds. Costs a quarter of the exact time,
/// and the request path calls it twice.
#[inline]
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
            head: Duration::from_secs(20),
            request: Duration::from_secs(60),
            idle: Duration::from_secs(40),
            answer: Duration::from_secs(30),
            ..Limits::default()
        }
    }

    /// Moves the begin of the phase back by a number of seconds.
    fn pass(deadlines: &Deadlines, seconds: u64) {
        deadlines.since.fetch_sub(seconds * 1_000_000_000, Ordering::Relaxed);
    }

    #[test]
    fn each_phase_has_its_own_deadline() {
        let deadlines = Deadlines::new(limits());
        assert!(deadlines.check().is_ok());
        assert!(deadlines.received(1).unwrap());
        pass(&deadlines, 25);
        assert!(!deadlines.received(1).unwrap());
        assert_eq!(deadlines.check(), Err(Expired::Head), "more bytes of the same head do not extend its deadline");
        deadlines.request_began();
        assert!(deadlines.check().is_ok(), "handling has no deadline here");
        deadlines.answered();
        deadlines.flushed();
        pass(&deadlines, 45);
        assert!(deadlines.check().is_ok(), "the service has not given all of the response");
        deadlines.completed();
        deadlines.write_blocked();
        pass(&deadlines, 35);
        deadlines.write_blocked();
        assert_eq!(deadlines.check(), Err(Expired::Answer), "occasional bytes are not progress");
        deadlines.flushed();
        deadlines.request_began();
        deadlines.flush_blocked();
        deadlines.write_blocked();
        deadlines.flushed();
        assert!(!deadlines.received(1).unwrap(), "the request is still handled");
        assert!(deadlines.check().is_ok(), "the rest of the previous response has no deadline");
        deadlines.answered();
        deadlines.completed();
        deadlines.flush_blocked();
        pass(&deadlines, 35);
        assert_eq!(deadlines.check(), Err(Expired::Answer), "a response that only TLS has accepted was not read");
        deadlines.flushed();
        assert!(deadlines.check().is_ok());
        pass(&deadlines, 45);
        assert_eq!(deadlines.check(), Err(Expired::Idle));
    }

    #[test]
    fn body_takes_a_limited_number_of_bytes() {
        let deadlines = Deadlines::new(limits());
        for _ in 0..2 {
            deadlines.request_began();
            deadlines.received(Limits::default().body - 1).unwrap();
            deadlines.answered();
            deadlines.completed();
            assert!(deadlines.received(2).is_err());
            deadlines.flushed();
            assert!(deadlines.received(1).unwrap(), "the next request counts alone");
            assert!(!deadlines.received(1).unwrap());
        }
    }

    #[test]
    fn client_that_keeps_reading_is_not_cut_off() {
        let (deadlines, progress) = (Deadlines::new(limits()), 64 * 1024);
        deadlines.answered();
        deadlines.write_blocked();
        deadlines.wrote(progress / 2);
        pass(&deadlines, 31);
        deadlines.wrote(progress / 2 - 1);
        assert_eq!(deadlines.check(), Err(Expired::Answer), "too little progress");
        deadlines.wrote(1);
        assert!(deadlines.check().is_ok());
        deadlines.wrote(progress - 1);
        pass(&deadlines, 31);
        assert_eq!(deadlines.check(), Err(Expired::Answer), "progress counts once");
    }
}
