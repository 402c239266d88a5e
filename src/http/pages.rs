//! Pages of lists: how they are asked for, and how they are kept, as they were sent, until anything is committed.

use std::borrow::Cow;
use std::sync::Arc;

use axum::http::header::LINK;
use axum::http::{HeaderValue, StatusCode};
use bytes::Bytes;
use foldhash::fast::RandomState;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use super::error::ApiError;
use super::input::{Query, integer};
use super::json::{self, Response};
use super::operations::Operation;
use super::state::Api;
use crate::domain::{AccountId, Invalid, OrderQuery, PageLimit, PageQuery, PetQuery};
use crate::store::Version;
use crate::telemetry::metrics::Counter;

/// The parameters of a list.
pub const PARAMETERS: [&str; 3] = ["limit", "status", "after"];

/// How many bytes of pages are kept, beside their keys.
const CAPACITY: u64 = 8 << 20;

/// One page, ready to be sent.
#[derive(Clone, Debug)]
pub struct Page {
    body: Bytes,
    /// The `Link` to the next page, where one follows.
    next: Option<HeaderValue>,
}

impl Page {
    /// A page of `items`. Where `more` of them follow, `link` leads to what comes after the last one.
    pub fn new(items: Items, more: bool, link: impl FnOnce(i64) -> String) -> Self {
        let Items { mut body, last } = items;
        body.push(b']');
        let next = last.filter(|_| more).map(link);
        let next = next.map(|link| HeaderValue::try_from(link).expect("an address has visible ASCII only"));
        Self { body: body.into(), next }
    }
}

/// The items of a page, as they are written one after the other.
pub struct Items {
    body: Vec<u8>,
    /// The id of the one written last.
    last: Option<i64>,
}

impl Items {
    pub fn new() -> Self {
        let mut body = Vec::with_capacity(64 * 32);
        body.push(b'[');
        Self { body, last: None }
    }

    /// Where the item with this id is to be written.
    pub fn add(&mut self, id: i64) -> &mut Vec<u8> {
        if self.last.replace(id).is_some() {
            self.body.push(b',');
        }
        &mut self.body
    }
}

/// What a page is of, and which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    Pets(PetQuery),
    Orders(AccountId, OrderQuery),
}

/// Answers with the page that is kept, or else with the one that `read` makes.
pub async fn answer(
    api: &Api,
    list: List,
    read: impl Future<Output = Result<Page, ApiError>>,
) -> Result<Response, ApiError> {
    // Taken before anything is read: a commit in between makes the page old at once, never wrongly new.
    let version = api.store.version();
    let kept = version.and_then(|version| api.pages.get(&list, version));
    let page = match kept {
        Some(page) => page,
        None => {
            let page = read.await?;
            if let Some(version) = version {
                api.pages.keep(list, version, &page);
            }
            page
        }
    };
    let mut response = json::answer(StatusCode::OK, page.body);
    if let Some(next) = page.next {
        response.headers_mut().insert(LINK, next);
    }
    Ok(response)
}

/// Reads which page is asked for.
pub fn query<Status>(
    query: &Query,
    parse: impl FnOnce(&str) -> Result<Status, Invalid>,
) -> Result<PageQuery<Status>, ApiError> {
    of_parameters(query.parameters(PARAMETERS)?, parse)
}

/// The same from the values of `PARAMETERS`.
pub fn of_parameters<Status>(
    [limit, status, after]: [Option<Cow<'_, str>>; 3],
    parse: impl FnOnce(&str) -> Result<Status, Invalid>,
) -> Result<PageQuery<Status>, ApiError> {
    let number = |name: &str, text: &str| {
        let invalid = || Invalid("must be an integer: digits with an optional minus sign, within 64 bits".into());
        integer(text).ok_or_else(|| ApiError::invalid_value(name, &invalid()))
    };
    let refused = |name: &'static str| move |invalid| ApiError::invalid_value(name, &invalid);
    Ok(PageQuery {
        limit: match limit {
            Some(text) => PageLimit::new(number("limit", &text)?).map_err(refused("limit"))?,
            None => PageLimit::default(),
        },
        status: status.map(|text| parse(&text).map_err(refused("status"))).transpose()?,
        after: after.map(|text| number("after", &text)).transpose()?,
    })
}

/// The `Link` to the entries after `last` in the list of `operation`. It may be relative (RFC 8288).
pub fn next(api: &Api, operation: Operation, limit: PageLimit, status: Option<&str>, last: i64) -> String {
    let (base, path) = (api.addresses.base_url.as_reference(), operation.api_path());
    let status = status.map_or(String::new(), |status| format!("&status={status}"));
    format!(r#"<{base}{path}?limit={}{status}&after={last}>; rel="next""#, limit.get())
}

/// The pages that were asked for lately. A page is given out only under the version of the store it was read at, so
/// that it shows every commit that was answered before it was asked for, whoever made it.
#[derive(Debug)]
pub struct Pages {
    kept: Cache<List, Arc<(Version, Page)>, BodySize, RandomState>,
    /// How often a page was there, and how often it had to be read.
    pub hits: Counter,
    pub misses: Counter,
}

impl Pages {
    pub fn new() -> Self {
        // Pages of 20 animals are about 1 KiB; the estimate only sizes tables.
        Self {
            kept: Cache::with(4_096, CAPACITY, BodySize, RandomState::default(), DefaultLifecycle::default()),
            hits: Counter::default(),
            misses: Counter::default(),
        }
    }

    fn get(&self, list: &List, version: Version) -> Option<Page> {
        let page = self.kept.get(list).filter(|kept| kept.0 == version).map(|kept| kept.1.clone());
        if page.is_some() { &self.hits } else { &self.misses }.increment();
        page
    }

    fn keep(&self, list: List, version: Version, page: &Page) {
        self.kept.insert(list, Arc::new((version, page.clone())));
    }
}

#[derive(Clone, Debug)]
struct BodySize;

impl Weighter<List, Arc<(Version, Page)>> for BodySize {
    fn weight(&self, _: &List, kept: &Arc<(Version, Page)>) -> u64 {
        kept.1.body.len() as u64 + 256
    }
}
