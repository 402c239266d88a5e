//! How much a test does, and with which choices: its short form, unless `scripts/promises` asks for the full one.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::time::{SystemTime, UNIX_EPOCH};

/// How many rounds to run: those of the full figure where the environment asks for it.
pub fn rounds(short: u32) -> u32 {
    from_environment("PETSTORE_ROUNDS").map_or(short, |rounds| rounds.try_into().expect("a number of rounds"))
}

/// Whether this run is to reach the figure, on a machine that does nothing else. The short form runs beside other tests,
/// where times tell nothing.
pub fn is_full() -> bool {
    from_environment("PETSTORE_ROUNDS").is_some()
}

/// Says what was measured, which `scripts/promises` keeps: the last that a test prints.
pub fn measured(figure: &str) {
    println!("measured: {figure}");
}

/// The choices of a run: all of them follow from its seed.
pub struct Random(u64);

impl Random {
    /// From the environment's seed, or else a new one, which is printed.
    pub fn from_seed() -> Self {
        let seed = from_environment("PETSTORE_SEED").unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            now.as_nanos() as u64 % 1_000_000_000
        });
        println!("seed {seed}: PETSTORE_SEED={seed} runs this again");
        Self(seed)
    }

    /// The next 64 bits, by SplitMix64 (Steele, Lea and Flood, 2014): enough to spread moments.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Choices of their own for somebody else.
    pub const fn another(&mut self) -> Self {
        Self(self.next())
    }

    /// A number below `end`.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn from_environment(name: &str) -> Option<u64> {
    let given = std::env::var(name).ok()?;
    Some(given.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
