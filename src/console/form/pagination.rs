//! Pagination: lists of the console begin with the newest entry.

use std::fmt::Display;

use super::submission::Form;
use crate::api::input::query_and_body::integer;
use crate::console::PageError;
use crate::domain::{Direction, Invalid, PageLimit};
use crate::store;

/// The place of a page in its list, from the page's address. A link gives at most one of both.
pub struct Place<Id> {
    /// Shows the entries before this id.
    before: Option<Id>,
    /// Shows the next entries after this id.
    after: Option<Id>,
    /// The other parameters of the address, which filter the list.
    filters: String,
}

/// The pages before and after a page.
pub struct Links<Id> {
    pub is_first: bool,
    /// Id of the first entry, if newer ones exist.
    pub newer: Option<Id>,
    /// Id of the last entry, if older ones exist.
    pub older: Option<Id>,
    /// The parameters of the address that filter the list, as a query.
    pub filters: String,
}

impl<Id> Place<Id> {
    pub const FIRST: Self = Self { before: None, after: None, filters: String::new() };

    /// Parses the query of a page's address. Empty parameters count as missing. Links have `before` or `after`. People
    /// enter `from`, the id to begin with; `successor` returns the next greater id.
    pub fn of(
        parameters: &Form,
        parse: impl Fn(&str) -> Result<Id, Invalid>,
        successor: impl FnOnce(Id) -> Id,
    ) -> Result<Self, PageError> {
        let id = |name| {
            let given = Some(parameters.get(name).trim()).filter(|value| !value.is_empty());
            given.map(&parse).transpose().map_err(|invalid| PageError::bad_request(format!("The id {invalid}.")))
        };
        let filters = parameters.without(&["from", "before", "after"]);
        match id("from")? {
            Some(from) => Ok(Self { before: Some(successor(from)), after: None, filters }),
            None => Ok(Self { before: id("before")?, after: id("after")?, filters }),
        }
    }
}

impl Place<i64> {
    /// Parses the query of the address of a list of numbered entries.
    pub fn of_numbered(parameters: &Form) -> Result<Self, PageError> {
        Self::of(parameters, parse_integer, |id| id.saturating_add(1))
    }
}

/// Parses a parameter by which a list is filtered. `None` if it is blank.
pub fn filter<T>(
    parameters: &Form,
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, Invalid>,
) -> Result<Option<T>, PageError> {
    let given = Some(parameters.get(name).trim()).filter(|value| !value.is_empty());
    given.map(parse).transpose().map_err(|invalid| {
        PageError::bad_request(format!("{}{} {invalid}.", name[..1].to_ascii_uppercase(), &name[1..]))
    })
}

/// Reads the page at `place`: its entries, newest first, and its links. `read` returns at most the given number of entries
/// that follow an id in a direction, and whether more follow.
pub async fn newest_first<T, Id: Copy, Read>(
    place: Place<Id>,
    limit: PageLimit,
    id: impl Fn(&T) -> Id,
    read: impl Fn(Direction, Option<Id>, PageLimit) -> Read,
) -> store::Result<(Vec<T>, Links<Id>)>
where
    Read: Future<Output = store::Result<(Vec<T>, bool)>>,
{
    let Place { before, after, filters } = place;
    if after.is_some() {
        let (mut entries, more) = read(Direction::Ascending, after, limit).await?;
        // Otherwise these entries are on the first page, with older ones.
        if more {
            entries.reverse();
            let (newer, older) = (entries.first().map(&id), entries.last().map(&id));
            return Ok((entries, Links { is_first: false, newer, older, filters }));
        }
    }
    let (entries, more) = read(Direction::Descending, before, limit).await?;
    let (first, last) = (entries.first().map(&id), entries.last().map(&id));
    let is_first = match (before, first) {
        (None, _) => true,
        (_, Some(first)) => read(Direction::Ascending, Some(first), PageLimit::ONE).await?.0.is_empty(),
        (_, None) => read(Direction::Descending, None, PageLimit::ONE).await?.0.is_empty(),
    };
    let links = Links { is_first, newer: first.filter(|_| !is_first), older: last.filter(|_| more), filters };
    Ok((entries, links))
}

/// Returns the query for an API request that lists the entries of a page, which the API returns in ascending order. `None`
/// for a page after the last entry. `predecessor` returns the next smaller id.
pub fn as_api<T, Id: Copy + Display>(
    entries: &[T],
    links: &Links<Id>,
    status: Option<&str>,
    predecessor: impl FnOnce(Id) -> Id,
) -> Option<String> {
    if entries.is_empty() && !links.is_first {
        return None;
    }
    let status = status.map_or(String::new(), |status| format!("&status={status}"));
    let after = links.older.map_or(String::new(), |last| format!("&after={}", predecessor(last)));
    let limit = if links.is_first { PageLimit::default().get() } else { entries.len() as i64 };
    Some(format!("limit={limit}{status}{after}"))
}

pub fn parse_integer(text: &str) -> Result<i64, Invalid> {
    integer(text).ok_or_else(|| Invalid("must be a whole number of at most 64 bits, written in digits".into()))
}
