//! Queries for one page of a list.

use super::Invalid;

/// Maximum number of items on a page: 1 to 100, 20 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageLimit(u8);

impl PageLimit {
    pub const MAX: u8 = 100;
    pub const ONE: Self = Self(1);
    pub const LONGEST: Self = Self(Self::MAX);

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

/// Order of the ids on a page. The API lists in ascending order, the console in descending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    #[default]
    Ascending,
    Descending,
}

impl Direction {
    /// Returns the value that belongs to this direction.
    pub fn choose<T>(self, ascending: T, descending: T) -> T {
        match self {
            Self::Ascending => ascending,
            Self::Descending => descending,
        }
    }
}

/// Selects one page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageQuery<Status> {
    pub limit: PageLimit,
    /// Lists only items with this status.
    pub status: Option<Status>,
    /// Lists only items that follow this id in the direction.
    pub after: Option<i64>,
    pub direction: Direction,
}

impl<Status> PageQuery<Status> {
    /// Selects the newest item.
    pub const fn newest() -> Self {
        Self { limit: PageLimit::ONE, status: None, after: None, direction: Direction::Descending }
    }

    /// Returns the id that all items of the page follow in the direction.
    pub fn start(&self) -> i64 {
        self.after.unwrap_or_else(|| self.direction.choose(i64::MIN, i64::MAX))
    }
}

impl<Status> Default for PageQuery<Status> {
    fn default() -> Self {
        Self { limit: PageLimit::default(), status: None, after: None, direction: Direction::default() }
    }
}
