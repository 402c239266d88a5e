//! Pages of lists: their parameters, their items, and the link to the next page.

use axum::http::header::LINK;
use axum::http::{HeaderValue, StatusCode};
use bytes::Bytes;

use super::error::ApiError;
use super::input::{integer, parameters};
use super::operations::Operation;
use super::response::{self, Response};
use crate::config::Addresses;
use crate::domain::{Invalid, PageLimit, PageQuery};

/// Parses the query of a list. `parse` reads a status.
pub fn query<Status>(
    query: Option<&str>,
    parse: impl FnOnce(&str) -> Result<Status, Invalid>,
) -> Result<PageQuery<Status>, ApiError> {
    let [limit, status, after] = parameters(query, ["limit", "status", "after"])?;
    let number = |name: &str, text: &str| {
        let invalid = || Invalid("must be an integer: digits with an optional minus sign, within 64 bits".into());
        integer(text).ok_or_else(|| ApiError::invalid_value(name, &invalid()))
    };
    let invalid = |name: &'static str| move |invalid| ApiError::invalid_value(name, &invalid);
    Ok(PageQuery {
        limit: match limit {
            Some(text) => PageLimit::new(number("limit", &text)?).map_err(invalid("limit"))?,
            None => PageLimit::default(),
        },
        status: status.map(|text| parse(&text).map_err(invalid("status"))).transpose()?,
        after: after.map(|text| number("after", &text)).transpose()?,
    })
}

/// Returns the `Link` to the entries after `last` in the list of `operation`. It may be relative (RFC 8288).
pub fn next(addresses: &Addresses, operation: Operation, limit: PageLimit, status: Option<&str>, last: i64) -> String {
    let (base, path) = (addresses.base_url.as_reference(), operation.api_path());
    let status = status.map_or(String::new(), |status| format!("&status={status}"));
    format!(r#"<{base}{path}?limit={}{status}&after={last}>; rel="next""#, limit.get())
}

/// The JSON array of a page while its items are written.
pub struct Items {
    body: Vec<u8>,
    /// The id of the last item.
    last: Option<i64>,
}

impl Items {
    pub fn new() -> Self {
        let mut body = Vec::with_capacity(64 * 32);
        body.push(b'[');
        Self { body, last: None }
    }

    /// Returns the buffer to write the item with this id to.
    pub fn add(&mut self, id: i64) -> &mut Vec<u8> {
        if self.last.replace(id).is_some() {
            self.body.push(b',');
        }
        &mut self.body
    }
}

/// A page, ready to be sent.
#[derive(Clone, Debug)]
pub struct Page {
    body: Bytes,
    /// The `Link` to the next page. `None` on the last page.
    next: Option<HeaderValue>,
}

impl Page {
    /// A page of `items`. If `more` items follow, `link` returns the link to those after the given id.
    pub fn new(items: Items, more: bool, link: impl FnOnce(i64) -> String) -> Self {
        let Items { mut body, last } = items;
        body.push(b']');
        let next = last.filter(|_| more).map(link);
        let next = next.map(|link| HeaderValue::try_from(link).expect("an address has visible ASCII only"));
        Self { body: body.into(), next }
    }

    /// Size of the body in bytes.
    pub const fn size(&self) -> usize {
        self.body.len()
    }

    pub fn into_response(self) -> Response {
        let mut response = response::json(StatusCode::OK, self.body);
        if let Some(next) = self.next {
            response.headers_mut().insert(LINK, next);
        }
        response
    }
}
