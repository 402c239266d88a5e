//! Pages of lists that the API pages: what an address asks for, and the API's query for the same.

use super::error::PageError;
use super::form::Form;
use crate::domain::{Invalid, PageLimit, PageQuery};
use crate::http::input::integer;

/// What a page's address asks for; an empty parameter counts as none.
pub fn query<Status>(
    parameters: &Form,
    parse: impl FnOnce(&str) -> Result<Status, Invalid>,
) -> Result<PageQuery<Status>, PageError> {
    let given = |name: &str| Some(parameters.get(name)).filter(|value| !value.is_empty());
    let refused = |name: &str, invalid: &Invalid| PageError::bad_request(format!("The {name} {invalid}."));
    let status = given("status").map(parse).transpose().map_err(|invalid| refused("status", &invalid))?;
    let after = given("after").map(parse_integer).transpose().map_err(|invalid| refused("id", &invalid))?;
    Ok(PageQuery { status, after, ..PageQuery::default() })
}

/// The query that the API takes for the same page.
pub fn as_api<Status: Copy>(query: &PageQuery<Status>, name: impl FnOnce(Status) -> &'static str) -> String {
    let status = query.status.map_or(String::new(), |status| format!("&status={}", name(status)));
    let after = query.after.map_or(String::new(), |after| format!("&after={after}"));
    format!("limit={}{status}{after}", query.limit.get())
}

/// The query for the first entry of the list. A page with `after` is the first page if it begins with this entry.
pub fn first<Status: Copy>(query: &PageQuery<Status>) -> PageQuery<Status> {
    PageQuery { limit: PageLimit::ONE, status: query.status, after: None }
}

pub fn parse_integer(text: &str) -> Result<i64, Invalid> {
    integer(text).ok_or_else(|| Invalid("must be a whole number of at most 64 bits, written in digits".into()))
}
