//! The size and the seed of a test run: short by default, full when `scripts/verify` sets the environment.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The number of rounds: `PETSTORE_ROUNDS` if it is set, else `short`.
pub fn rounds(short: u32) -> u32 {
    from_environment("PETSTORE_ROUNDS").map_or(short, |rounds| rounds.try_into().expect("a number of rounds"))
}

/// Returns true in a full run, on an otherwise idle machine. Short runs share the machine with other tests, so their
/// times mean little.
pub fn is_full() -> bool {
    from_environment("PETSTORE_ROUNDS").is_some()
}

/// Judges time in a full run only: asserts that `what` took at most `limit`.
pub fn judge(what: &str, took: Duration, limit: Duration) {
    assert!(took <= limit || !is_full(), "{what} took {took:?}, longer than {limit:?}");
}

/// Counts from 1 to `rounds` and prints the progress about ten times.
pub fn counted(rounds: u32) -> impl Iterator<Item = u32> {
    let every = rounds.div_ceil(10);
    (1..=rounds).inspect(move |round| {
        if round % every == 0 {
            println!("round {round} of {rounds}");
        }
    })
}

/// Returns `PETSTORE_SEED` if it is set, else a seed from the clock. Prints it.
pub fn seed() -> u64 {
    let seed = from_environment("PETSTORE_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_nanos() as u64 % 1_000_000_000
    });
    println!("seed {seed}: PETSTORE_SEED={seed} runs this again");
    seed
}

/// Prints the result of a test as its last line. `scripts/verify` records it.
pub fn measured(figure: &str) {
    println!("measured: {figure}");
}

/// A random number generator. Its seed determines every choice of a run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Seeds from [`seed`].
    pub fn from_seed() -> Self {
        Self(seed())
    }

    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits, by SplitMix64 (Steele, Lea and Flood, 2014).
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// An independent generator.
    pub const fn another(&mut self) -> Self {
        Self(self.next())
    }

    /// A number below `end`.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// An index of a slice of this length.
    pub const fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Sleeps for a number of milliseconds in this range.
    pub fn sleep(&mut self, milliseconds: Range<u64>) {
        let Range { start, end } = milliseconds;
        std::thread::sleep(Duration::from_millis(start + self.below(end - start)));
    }
}

fn from_environment(name: &str) -> Option<u64> {
    let given = std::env::var(name).ok()?;
    Some(given.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
