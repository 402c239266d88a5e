//! Pages of animals, kept as they were sent until anything is committed.

use std::sync::Arc;

use axum::http::HeaderValue;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::domain::PetQuery;
use crate::store::Version;

/// How many bytes of pages are kept, beside their keys.
const CAPACITY: u64 = 8 << 20;

/// One page, ready to be sent.
#[derive(Clone, Debug)]
pub struct Page {
    pub body: Bytes,
    /// The `Link` to the next page, where one follows.
    pub next: Option<HeaderValue>,
}

/// The pages that were asked for lately. A page is given out only under the version of the store it was read at, so
/// that it shows every commit that was answered before it was asked for, whoever made it.
#[derive(Debug)]
pub struct Pages(Cache<PetQuery, Arc<(Version, Page)>, BodySize>);

impl Pages {
    pub fn new() -> Self {
        // Pages of 20 animals are about 1 KiB; the estimate only sizes tables.
        Self(Cache::with_weighter(4_096, CAPACITY, BodySize))
    }

    pub fn get(&self, query: &PetQuery, version: Version) -> Option<Page> {
        self.0.get(query).filter(|kept| kept.0 == version).map(|kept| kept.1.clone())
    }

    pub fn keep(&self, query: PetQuery, version: Version, page: &Page) {
        self.0.insert(query, Arc::new((version, page.clone())));
    }
}

#[derive(Clone, Debug)]
struct BodySize;

impl Weighter<PetQuery, Arc<(Version, Page)>> for BodySize {
    fn weight(&self, _: &PetQuery, kept: &Arc<(Version, Page)>) -> u64 {
        kept.1.body.len() as u64 + 256
    }
}
