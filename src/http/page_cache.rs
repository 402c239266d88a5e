//! Pages of lists, cached as they are sent until the next commit.

use std::sync::Arc;

use foldhash::fast::RandomState;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use super::error::ApiError;
use super::pagination::Page;
use super::response::Response;
use crate::domain::{AccountId, OrderQuery, PetQuery};
use crate::store::{Store, Version};
use crate::telemetry::metrics::Counter;

/// Maximum size of all cached pages in bytes, without their keys.
const CAPACITY: u64 = 8 << 20;

/// Identifies a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    Pets(PetQuery),
    Orders(AccountId, OrderQuery),
}

/// Responds with the cached page of `list`, or with the page that `read` returns from `store`.
pub async fn respond(
    pages: &PageCache,
    store: &Store,
    list: List,
    read: impl Future<Output = Result<Page, ApiError>>,
) -> Result<Response, ApiError> {
    // Taken before the read: a commit during the read makes the cached page outdated at once, never wrongly current.
    let version = store.version();
    let cached = version.and_then(|version| pages.get(&list, version));
    let page = match cached {
        Some(page) => page,
        None => {
            let page = read.await?;
            if let Some(version) = version {
                pages.insert(list, version, &page);
            }
            page
        }
    };
    Ok(page.into_response())
}

/// The pages requested recently. A page is only returned for the store version it was read at, so it contains every
/// commit that was acknowledged before the request, by any process.
#[derive(Debug)]
pub struct PageCache {
    pages: Cache<List, Arc<(Version, Page)>, BodySize, RandomState>,
    pub hits: Counter,
    pub misses: Counter,
}

impl PageCache {
    pub fn new() -> Self {
        // Pages of 20 animals are about 1 KiB; the estimate only sizes tables.
        Self {
            pages: Cache::with(4_096, CAPACITY, BodySize, RandomState::default(), DefaultLifecycle::default()),
            hits: Counter::default(),
            misses: Counter::default(),
        }
    }

    fn get(&self, list: &List, version: Version) -> Option<Page> {
        let page = self.pages.get(list).filter(|cached| cached.0 == version).map(|cached| cached.1.clone());
        if page.is_some() { &self.hits } else { &self.misses }.increment();
        page
    }

    fn insert(&self, list: List, version: Version, page: &Page) {
        self.pages.insert(list, Arc::new((version, page.clone())));
    }
}

#[derive(Clone, Debug)]
struct BodySize;

impl Weighter<List, Arc<(Version, Page)>> for BodySize {
    fn weight(&self, _: &List, cached: &Arc<(Version, Page)>) -> u64 {
        cached.1.size() as u64 + 256
    }
}
