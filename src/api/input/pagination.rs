//! Pages of lists: their parameters, their items, and the link to the next page.

use std::borrow::Cow;
use std::fmt::Display;

use axum::http::header::LINK;
use axum::http::{HeaderValue, StatusCode};
use bytes::Bytes;

use super::query_and_body::{integer, parameters};
use crate::api::error::ApiError;
use crate::api::response::{self, Response};
use crate::domain::{Direction, Invalid, PageLimit, PageQuery};

/// Parses the query of a list. `parse` reads a status.
pub fn query<Status>(
    query: Option<&str>,
    parse: impl FnOnce(&str) -> Result<Status, Invalid>,
) -> Result<PageQuery<Status>, ApiError> {
    query_of(parameters(query, ["limit", "status", "after"])?, parse)
}

/// Like [`query`], from the values of `limit`, `status` and `after`.
pub fn query_of<Status>(
    [given, status, after]: [Option<Cow<'_, str>>; 3],
    parse: impl FnOnce(&str) -> Result<Status, Invalid>,
) -> Result<PageQuery<Status>, ApiError> {
    Ok(PageQuery {
        limit: limit(given)?,
        status: status.map(|text| parse(&text).map_err(ApiError::invalid_value("status"))).transpose()?,
        after: after.map(|text| number("after", &text)).transpose()?,
        direction: Direction::Ascending,
    })
}

pub fn limit(text: Option<Cow<'_, str>>) -> Result<PageLimit, ApiError> {
    let Some(text) = text else { return Ok(PageLimit::default()) };
    PageLimit::new(number("limit", &text)?).map_err(ApiError::invalid_value("limit"))
}

pub fn number(name: &str, text: &str) -> Result<i64, ApiError> {
    let expected = "must be an integer: digits with an optional minus sign, within 64 bits";
    integer(text).ok_or_else(|| ApiError::invalid_value(name)(Invalid(expected.into())))
}

/// Returns a parameter for a query that has others before it. Empty without a value.
pub fn filter(name: &str, value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| format!("&{name}={value}"))
}

/// The JSON array of a page while its items are written.
pub struct Items<Id> {
    body: Vec<u8>,
    last: Option<Id>,
}

impl<Id> Items<Id> {
    pub fn new() -> Self {
        let mut body = Vec::with_capacity(64 * 32);
        body.push(b'[');
        Self { body, last: None }
    }

    /// Returns the buffer to write the next item to.
    pub fn add(&mut self, id: Id) -> &mut Vec<u8> {
        if self.last.replace(id).is_some() {
            self.body.push(b',');
        }
        &mut self.body
    }

    /// Returns the page of the items. `link` returns the `Link` to the next page, if there are `more` items after the last.
    pub fn into_page(mut self, more: bool, link: impl FnOnce(Id) -> String) -> Page {
        self.body.push(b']');
        let next = self.last.filter(|_| more).map(link);
        let next = next.map(|link| HeaderValue::try_from(link).expect("an address has visible ASCII only"));
        Page { body: self.body.into(), next }
    }
}

/// A page, ready to be sent.
#[derive(Clone, Debug)]
pub struct Page {
    pub body: Bytes,
    /// The `Link` to the next page. `None` on the last page.
    pub next: Option<HeaderValue>,
}

impl Page {
    pub fn into_response(self) -> Response {
        let mut response = response::json(StatusCode::OK, self.body);
        if let Some(next) = self.next {
            response.headers_mut().insert(LINK, next);
        }
        response
    }
}
