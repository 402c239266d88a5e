//! Pagination: the query of a page's address, and the API's query for the same page.

use super::error::PageError;
use super::form::Form;
use crate::domain::{Invalid, PageLimit, PageQuery};
use crate::http::input::integer;

/// Parses the query of a page's address. Empty parameters count as missing. People enter `from`, the first id to show. Links
/// have `after`.
pub fn query<Status>(
    parameters: &Form,
    parse: impl FnOnce(&str) -> Result<Status, Invalid>,
) -> Result<PageQuery<Status>, PageError> {
    let given = |name: &str| Some(parameters.get(name)).filter(|value| !value.is_empty());
    let refused = |name: &str, invalid: &Invalid| PageError::bad_request(format!("The {name} {invalid}."));
    let status = given("status").map(parse).transpose().map_err(|invalid| refused("status", &invalid))?;
    let id =
        |name| given(name).map(|id| parse_integer(id.trim())).transpose().map_err(|invalid| refused("id", &invalid));
    let after = match id("from")? {
        Some(from) => Some(from.saturating_sub(1)),
        None => id("after")?,
    };
    Ok(PageQuery { status, after, ..PageQuery::default() })
}

/// Returns the API's query for the same page.
pub fn as_api<Status: Copy>(query: &PageQuery<Status>, name: impl FnOnce(Status) -> &'static str) -> String {
    let status = query.status.map_or(String::new(), |status| format!("&status={}", name(status)));
    let after = query.after.map_or(String::new(), |after| format!("&after={after}"));
    format!("limit={}{status}{after}", query.limit.get())
}

/// Returns the query for the first entry of the list. A page with `after` is the first page if it begins with this
/// entry.
pub fn first<Status: Copy>(query: &PageQuery<Status>) -> PageQuery<Status> {
    PageQuery { limit: PageLimit::ONE, status: query.status, after: None }
}

pub fn parse_integer(text: &str) -> Result<i64, Invalid> {
    integer(text).ok_or_else(|| Invalid("must be a whole number of at most 64 bits, written in digits".into()))
}
