//! State that the handlers share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bounded_http::Tls;
use parking_lot::Mutex;

use super::addresses::Addresses;
use super::admission::keys::ApiKeyCache;
use super::admission::rate_limit::{RateLimit, RateLimits};
use super::cache::pages::PageCache;
use super::cache::pet_counts::PetCounts;
use super::client::Network;
use super::counters::per_minute::RequestHistory;
use super::counters::requests::Traffic;
use super::documents::deprecation::Deprecation;
use super::documents::file::File;
use super::prefer::preferences::Simulator;
use super::recorder::recent::AccountRequests;
use crate::domain::{Deployment, MessageIds, Timestamp};
use crate::relay;
use crate::runtime::clock::Clock;
use crate::runtime::workers::Workers;
use crate::store::Store;
use crate::telemetry::metrics::Counter;

/// Everything that a handler needs.
#[derive(Debug)]
pub struct Api {
    pub store: Arc<Store>,
    pub workers: Workers,
    pub api_keys: ApiKeyCache,
    pub clock: Clock,
    pub message_ids: MessageIds,
    pub addresses: Arc<Addresses>,
    pub deprecation: Deprecation,
    /// The OpenAPI documents: of each version, that before and that after the removal of `getPet`. Each is made when a client
    /// first requests it, because making it takes milliseconds, which would delay the start.
    pub documents: [[OnceLock<File>; 2]; 2],
    pub pages: PageCache,
    pub pet_counts: PetCounts,
    pub rate_limits: Option<RateLimits>,
    /// `None` in production, and if simulation is off.
    pub simulator: Option<Simulator>,
    pub requests: RequestHistory,
    pub account_requests: AccountRequests,
    pub traffic: Traffic,
    pub started: SystemTime,
    pub password_counters: Arc<PasswordCounters>,
    pub trusted_proxies: Vec<Network>,
    pub logs_requests: bool,
    /// Unset without TLS.
    pub certificate: OnceLock<Tls>,
    /// The relay, which is notified of every accepted message. Unset if this process does not relay.
    pub relay: OnceLock<Arc<relay::Status>>,
    /// Unset without scheduled backups.
    pub backups: OnceLock<Arc<BackupStatus>>,
    /// True once `/readyz` reports that new requests should go elsewhere.
    pub draining: AtomicBool,
}

/// The settings of the API.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// True if staging simulates failures. Production never does.
    pub simulates: bool,
    pub rate_limit: Option<RateLimit>,
    pub trusted_proxies: Vec<Network>,
    /// True if every request is logged, as it always is at level debug. Health checks never are.
    pub logs_requests: bool,
}

/// Counters of the console's password checks, kept here because `/metrics` shows them.
#[derive(Debug, Default)]
pub struct PasswordCounters {
    /// Passwords that were hashed or checked.
    pub hashed: Counter,
    /// Requests refused because too many passwords were waiting, including those that only ask whether it is their turn.
    pub refused: Counter,
    /// Attempts to sign in or up that were refused, because there were too many.
    pub throttled: Counter,
}

/// Status of scheduled backups, kept here because `/metrics` shows it. Written by the schedule.
#[derive(Debug, Default)]
pub struct BackupStatus {
    /// The interval of the schedule.
    pub every: Duration,
    /// The time and the size of the newest backup, by this process or an earlier one. `None` if there is no backup.
    pub newest: Mutex<Option<(Timestamp, u64)>>,
    /// Backups that failed in this process.
    pub failures: Counter,
}

impl Api {
    /// Creates the state. The runtime of the caller becomes that of the workers.
    pub fn new(store: Arc<Store>, clock: Clock, addresses: Addresses, settings: ApiSettings) -> Self {
        let simulates = store.deployment() == Deployment::Staging && settings.simulates;
        let addresses = Arc::new(addresses);
        Self {
            api_keys: ApiKeyCache::new(Arc::clone(&store), clock.clone()),
            deprecation: Deprecation::of_get_pet(&addresses),
            documents: Default::default(),
            pages: PageCache::new(),
            pet_counts: PetCounts::default(),
            rate_limits: settings.rate_limit.map(|limit| RateLimits::new(limit, clock.clone())),
            simulator: simulates.then(Simulator::new),
            requests: RequestHistory::default(),
            account_requests: AccountRequests::new(store.deployment(), store.is_durable()),
            traffic: Traffic::new(),
            started: SystemTime::now(),
            password_counters: Arc::default(),
            trusted_proxies: settings.trusted_proxies,
            logs_requests: settings.logs_requests,
            store,
            workers: Workers::current(),
            clock,
            message_ids: MessageIds::default(),
            addresses,
            certificate: OnceLock::new(),
            relay: OnceLock::new(),
            backups: OnceLock::new(),
            draining: AtomicBool::new(false),
        }
    }
}
