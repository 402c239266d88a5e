//! The token bucket behind every limit on how often something may happen.

/// A bucket that holds `capacity` tokens and refills steadily (generic cell rate algorithm, ITU-T I.371).
///
/// The state of a bucket is the time at which it will be full, so a full bucket need not be stored. All times have the
/// same unit, which is the caller's choice.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    pub capacity: u64,
    /// Time after which one token comes back.
    pub refill: u64,
}

/// The result of taking a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub is_allowed: bool,
    /// Tokens that can be taken now.
    pub remaining: u64,
    /// Time until the next token comes back.
    pub next: u64,
    /// The new state of the bucket.
    pub full_at: u64,
}

impl TokenBucket {
    /// Time until an empty bucket is full.
    pub const fn window(self) -> u64 {
        self.capacity * self.refill
    }

    /// Takes a token at `now` if there is one. A refused attempt takes nothing.
    ///
    /// The state never decreases, so threads may pass times in any order: an earlier time finds no more tokens.
    pub fn take(self, full_at: u64, now: u64) -> Taken {
        let full_at = full_at.max(now);
        let empty_until = now + self.window();
        let (left, overdrawn) = (empty_until.saturating_sub(full_at), full_at.saturating_sub(empty_until));
        let is_allowed = left >= self.refill;
        let taken = if is_allowed { self.refill } else { 0 };
        let left = left - taken;
        let (remaining, next) = (left / self.refill, self.refill - left % self.refill + overdrawn);
        Taken { is_allowed, remaining, next, full_at: full_at + taken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_attempts_take_nothing() {
        let bucket = TokenBucket { capacity: 2, refill: 10 };
        let first = bucket.take(0, 100);
        assert_eq!(first, Taken { is_allowed: true, remaining: 1, next: 10, full_at: 110 });
        let second = bucket.take(first.full_at, 103);
        assert_eq!(second, Taken { is_allowed: true, remaining: 0, next: 7, full_at: 120 });
        let refused = bucket.take(second.full_at, 105);
        assert_eq!(refused, Taken { is_allowed: false, remaining: 0, next: 5, full_at: 120 });
        assert!(bucket.take(refused.full_at, 110).is_allowed, "after the time that was returned");
    }

    /// A thread may read the clock first, and take its token after threads with later times.
    #[test]
    fn earlier_time_gives_no_token_back() {
        let bucket = TokenBucket { capacity: 2, refill: 10 };
        let emptied = bucket.take(bucket.take(0, 100).full_at, 100);
        let late = bucket.take(emptied.full_at, 93);
        assert_eq!(late, Taken { is_allowed: false, remaining: 0, next: 17, full_at: 120 });
        assert!(!bucket.take(late.full_at, 109).is_allowed);
        assert!(bucket.take(late.full_at, 110).is_allowed, "after the time that was returned");
    }
}
