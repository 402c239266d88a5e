//! Counts of events in simulations. A measurement shows by them that there was something to survive.

use std::fmt;

/// The kinds of events that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Seed,
    Response,
    Acknowledged,
    PowerFailure,
    End,
    FailedWriter,
    Stored,
}

const NAMES: [&str; 7] = [
    "seeds", "responses", "acknowledged writes", "power failures", "ends of processes", "writers that failed",
    "messages received",
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally([u64; NAMES.len()]);

impl Tally {
    pub fn count(&mut self, event: Event, number: u64) {
        self.0[event as usize] += number;
    }

    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, more)| *own += more);
    }

    /// The form that one process passes to another.
    pub fn to_line(self) -> String {
        self.0.map(|number| number.to_string()).join(" ")
    }

    pub fn parse(line: &str) -> Self {
        let mut tally = Self::default();
        for (number, text) in tally.0.iter_mut().zip(line.split(' ')) {
            *number = text.parse().expect("a number");
        }
        tally
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.0.iter().zip(NAMES).map(|(number, name)| format!("{number} {name}")).collect();
        f.write_str(&parts.join(", "))
    }
}
