//! Which scheduled backups are kept.

use std::time::Duration;

use crate::domain::Invalid;
use crate::domain::time::duration;

/// Which backups are kept. The last one always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The newest ones.
    Newest(usize),
    /// Those that are not older.
    For(Duration),
}

impl Keep {
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let number = text.parse().ok().filter(|number| *number > 0).map(Self::Newest);
        number.or_else(|| duration(text).ok().map(Self::For)).ok_or_else(|| {
            Invalid("it must be a number of backups from 1, or the greatest age of one, for instance 30d".into())
        })
    }
}
