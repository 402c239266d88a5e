//! Encoded pages of lists, cached until a commit may have changed them.

use std::sync::Arc;

use foldhash::fast::RandomState;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::api::error::ApiError;
use crate::api::input::pagination::Page;
use crate::api::response::Response;
use crate::domain::{AccountId, Direction, OrderQuery, PetQuery};
use crate::store::{Epoch, Store, Version};
use crate::telemetry::metrics::Counter;

/// Maximum size of all cached pages in bytes, without their keys.
const CAPACITY: u64 = 8 << 20;

/// Identifies a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    Pets(PetQuery),
    /// The orders of a customer, or all. Links of pages for staff name the customer.
    Orders {
        customer: Option<AccountId>,
        is_staff: bool,
        query: OrderQuery,
    },
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
    if let Some(page) = version.and_then(|version| pages.get(&list, version, store)) {
        return Ok(page.into_response());
    }
    let epoch = version.and_then(|version| store.epoch(&version));
    let page = read.await?;
    if let Some(version) = version {
        pages.pages.insert(list, Arc::new(Cached { version, epoch, page: page.clone() }));
    }
    Ok(page.into_response())
}

/// The pages requested recently. A page is only returned if its list is unchanged since it was read, so it contains every
/// commit that was acknowledged before the request, by any process.
#[derive(Debug)]
pub struct PageCache {
    pages: Cache<List, Arc<Cached>, BodySize, RandomState>,
    pub hits: Counter,
    pub misses: Counter,
}

/// A page, and the version of the store before it was read.
#[derive(Debug)]
struct Cached {
    version: Version,
    /// `None` if it is unknown. The page is then used for this version only.
    epoch: Option<Epoch>,
    page: Page,
}

impl PageCache {
    pub fn new() -> Self {
        // Pages of 20 animals are about 1 KiB; the estimate only sizes tables.
        Self {
            pages: Cache::with(4_096, CAPACITY, BodySize, Default::default(), Default::default()),
            hits: Counter::default(),
            misses: Counter::default(),
        }
    }

    fn get(&self, list: &List, version: Version, store: &Store) -> Option<Page> {
        let cached = self.pages.get(list).filter(|cached| {
            cached.version == version
                || store
                    .epoch(&version)
                    .zip(cached.epoch)
                    .is_some_and(|(now, then)| cached.is_unchanged(list, then, now))
        });
        if cached.is_some() { &self.hits } else { &self.misses }.increment();
        cached.map(|cached| cached.page.clone())
    }
}

impl Cached {
    /// Added animals follow all others, so an ascending page that is followed by another does not change.
    fn is_unchanged(&self, list: &List, then: Epoch, now: Epoch) -> bool {
        let may_grow = match list {
            List::Pets(query) => query.direction == Direction::Descending || self.page.next.is_none(),
            List::Orders { .. } => false,
        };
        then.changes == now.changes && (then.additions == now.additions || !may_grow)
    }
}

#[derive(Clone, Debug)]
struct BodySize;

impl Weighter<List, Arc<Cached>> for BodySize {
    fn weight(&self, _: &List, cached: &Arc<Cached>) -> u64 {
        cached.page.body.len() as u64 + 256
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::sqlite::{Options, Sqlite};

    #[tokio::test]
    async fn large_pages_displace_others() {
        const LENGTH: usize = 64 << 10;
        let folder = tempfile::tempdir().unwrap();
        let store = Store::Sqlite(Sqlite::open(&Options::new(folder.path())).unwrap());
        let pages = PageCache::new();
        for id in 1..=300 {
            let list = List::Pets(PetQuery { after: Some(id), ..PetQuery::default() });
            let page = Page { body: Bytes::from_static(&[b' '; LENGTH]), next: None };
            respond(&pages, &store, list, async { Ok(page) }).await.unwrap();
        }
        let most = CAPACITY as usize / LENGTH;
        assert!((most / 2..=most).contains(&pages.pages.len()), "{}", pages.pages.len());
    }
}
