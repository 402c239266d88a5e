//! Pages of lists: how long they are, and what is asked for.

use super::Invalid;

/// How many a page may hold: 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageLimit(u8);

impl PageLimit {
    pub const MAX: u8 = 100;
    pub const ONE: Self = Self(1);

    pub fn new(limit: i64) -> Result<Self, Invalid> {
        match u8::try_from(limit) {
            Ok(limit @ 1..=Self::MAX) => Ok(Self(limit)),
            _ => Err(Invalid(format!("is {limit}; 1 to {} are allowed", Self::MAX))),
        }
    }

    pub fn get(self) -> i64 {
        i64::from(self.0)
    }
}

impl Default for PageLimit {
    fn default() -> Self {
        Self(20)
    }
}

/// What to list: in order of the ids, those after `after`, with `status` where one is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageQuery<Status> {
    pub limit: PageLimit,
    pub status: Option<Status>,
    pub after: Option<i64>,
}

impl<Status> Default for PageQuery<Status> {
    fn default() -> Self {
        Self { limit: PageLimit::default(), status: None, after: None }
    }
}
