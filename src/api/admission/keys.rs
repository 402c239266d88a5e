//! Authenticates API keys, from memory if they were used before.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;
use tokio::time::timeout;

use crate::api::prefer::preferences::Preferences;
use crate::domain::api_key::{KeyGrant, KeyOwner};
use crate::domain::{ApiKey, KeyHash, KeyId, Timestamp};
use crate::runtime::clock::Clock;
use crate::store::{self, Store};
use crate::telemetry::metrics::Counter;

/// Maximum number of cached keys.
const CACHED: usize = 100_000;

/// Interval of checks for keys changed by other processes. A revocation takes effect within a second.
const WATCH: Duration = Duration::from_millis(250);

/// Interval of writing when keys were last used.
const FLUSH: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct ApiKeyCache {
    store: Arc<Store>,
    clock: Clock,
    cached: Cache<KeyHash, Arc<CachedKey>, UnitWeighter, RandomState>,
    /// Grows with every change of any key. Entries of earlier generations are outdated.
    generation: AtomicU64,
    pub counts: Counts,
    /// Requests with each key since the start. Entries of the same key share a counter.
    requests: Cache<KeyId, Arc<Counter>>,
    /// Keys whose last use is not stored yet.
    used: Mutex<HashMap<KeyId, Timestamp>>,
}

/// The result of authenticating a key. Only a valid one is accepted.
#[derive(Debug)]
pub enum Authentication {
    Valid(Arc<CachedKey>),
    /// The key is revoked or has expired.
    Inactive(KeyOwner),
    /// The key is malformed, unknown, of a deleted account or of the other deployment.
    Unknown,
}

/// Counters of well-formed keys in requests.
#[derive(Debug, Default)]
pub struct Counts {
    /// Found in memory.
    pub remembered: Counter,
    /// Looked up in the database.
    pub looked_up: Counter,
    /// Looked up, and unknown or revoked.
    pub unknown: Counter,
}

/// A key that was looked up.
#[derive(Debug)]
pub struct CachedKey {
    pub grant: KeyGrant,
    pub preferences: Option<Preferences>,
    generation: u64,
    /// Milliseconds, to the minute.
    last_used: AtomicI64,
    requests: Arc<Counter>,
}

impl ApiKeyCache {
    pub fn new(store: Arc<Store>, clock: Clock) -> Self {
        Self {
            store,
            clock,
            cached: Cache::with(CACHED, CACHED as u64, UnitWeighter, Default::default(), Default::default()),
            generation: AtomicU64::new(0),
            counts: Counts::default(),
            requests: Cache::new(CACHED),
            used: Mutex::default(),
        }
    }

    /// Finds the holder of a key, and whether the key is valid. Fails if the key is not cached and the store fails.
    pub async fn authenticate(&self, presented: &[u8]) -> store::Result<Authentication> {
        let Some(hash) = ApiKey::hash_presented(presented, self.store.deployment()) else {
            return Ok(Authentication::Unknown);
        };
        let generation = self.generation.load(Ordering::Acquire);
        let cached = match self.cached.get(&hash) {
            Some(cached) if cached.generation == generation => {
                self.counts.remembered.increment();
                cached
            }
            _ => {
                self.counts.looked_up.increment();
                let grant = match self.store.find_key(&hash).await? {
                    Some(grant) if !grant.is_revoked => grant,
                    found => {
                        self.counts.unknown.increment();
                        let inactive = found.map(|grant| Authentication::Inactive(grant.owner(true)));
                        return Ok(inactive.unwrap_or(Authentication::Unknown));
                    }
                };
                let last_used = AtomicI64::new(grant.last_used_at.map_or(i64::MIN, Timestamp::as_milliseconds));
                let Ok(requests) = self.requests.get_or_insert_with(&grant.id, || Ok::<_, Infallible>(Arc::default()));
                let preferences = grant.prefer.as_deref().map(|stored| Preferences::of_key(stored, self.clock.now()));
                let cached = Arc::new(CachedKey { grant, preferences, generation, last_used, requests });
                self.cached.insert(hash, Arc::clone(&cached));
                cached
            }
        };
        if cached.grant.expires_at.is_some_and(|expiry| expiry <= self.clock.steady()) {
            return Ok(Authentication::Inactive(cached.grant.owner(true)));
        }
        cached.requests.increment();
        let minute = self.clock.coarse_now().to_the_minute();
        if cached.last_used.load(Ordering::Relaxed) < minute.as_milliseconds() {
            cached.last_used.store(minute.as_milliseconds(), Ordering::Relaxed);
            self.used.lock().insert(cached.grant.id, minute);
        }
        Ok(Authentication::Valid(cached))
    }

    /// Returns the number of requests with a key to this process since its start. Counts only requests while the key was
    /// valid. If more than 100,000 keys are in use, the count of a rare one may begin again.
    pub fn requests(&self, key: KeyId) -> u64 {
        self.requests.get(&key).map_or(0, |requests| requests.get())
    }

    /// Returns the last use of a key, to the minute, if it is not stored yet.
    pub fn unstored_use(&self, key: KeyId) -> Option<Timestamp> {
        self.used.lock().get(&key).copied()
    }

    /// Invalidates all entries. Called after this process has changed a key, so that the change takes effect at once.
    pub fn note_change(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Follows the changes of other processes. Never ends.
    pub async fn follow(&self) {
        let mut version = None;
        loop {
            // While the version cannot be read, entries may be outdated.
            let read = timeout(2 * WATCH, self.store.keys_version()).await;
            let now = read.ok().and_then(Result::ok);
            if now.is_none() || version != now {
                self.note_change();
            }
            version = now;
            tokio::select! {
                () = tokio::time::sleep(WATCH) => {}
                () = self.store.keys_changed() => {}
            }
        }
    }

    /// Stores regularly when keys were last used. Separate from `follow`, because a write may have to wait. Never ends.
    pub async fn write_down_uses(&self) {
        loop {
            tokio::time::sleep(FLUSH).await;
            self.flush().await;
        }
    }

    /// Stores when keys were last used.
    pub async fn flush(&self) {
        let used: Vec<_> = self.used.lock().drain().collect();
        if !used.is_empty()
            && let Err(error) = self.store.touch_keys(used.clone()).await
        {
            tracing::warn!(%error, "last use of API keys not stored, retrying");
            let mut waiting = self.used.lock();
            for (id, at) in used {
                waiting.entry(id).or_insert(at);
            }
        }
    }
}
