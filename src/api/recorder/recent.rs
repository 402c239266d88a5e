//! The latest requests of each account, which the console shows.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use parking_lot::Mutex;

use super::record::RecordedRequest;
use crate::domain::{AccountId, Deployment};
use crate::store::Store;

/// Maximum number of an account's requests, except in an ephemeral store.
pub const REQUESTS: usize = 100;

/// Maximum number of an account's requests with an inactive key. These have a list of their own, so that a program with an old
/// key does not replace the requests of others.
const WITH_INACTIVE_KEY: usize = 20;

/// Maximum size of an account's requests in bytes, and of all requests.
const OF_ACCOUNT: usize = 1024 * 1024;
const OF_ALL: usize = 16 * 1024 * 1024;

/// Maximum numbers and sizes. An ephemeral store has two accounts, and the tests of one run.
#[derive(Clone, Copy, Debug)]
struct Capacity {
    /// Requests with an active key, and those with an inactive one.
    requests: [usize; 2],
    of_account: usize,
    of_all: usize,
}

const CAPACITY: Capacity = Capacity { requests: [REQUESTS, WITH_INACTIVE_KEY], of_account: OF_ACCOUNT, of_all: OF_ALL };
const OF_EPHEMERAL: Capacity = Capacity { requests: [10_000; 2], of_account: 16 * OF_ACCOUNT, of_all: 64 * OF_ACCOUNT };

/// Memory in bytes that a request takes beside its texts: allocations, the places in the maps and lists, and an account.
const OVERHEAD: usize = 512;

/// Interval of checks for accounts that another process deleted, or that were deleted while a request was in progress.
const WATCH: Duration = Duration::from_secs(1);

/// The latest requests to this process, per account. The oldest are removed first.
#[derive(Debug)]
pub struct AccountRequests {
    /// True on staging: successful requests are kept too, and all with their heads and bodies.
    pub keeps_all: bool,
    lists: Mutex<Lists>,
}

#[derive(Debug)]
struct Lists {
    capacity: Capacity,
    /// All requests, by their ids, which increase.
    requests: BTreeMap<u64, Arc<RecordedRequest>>,
    accounts: HashMap<AccountId, OfAccount>,
    size: usize,
    next: u64,
}

/// The ids of an account's requests, oldest first.
#[derive(Debug, Default)]
struct OfAccount {
    /// Those with an active key, and those with an inactive one.
    requests: [VecDeque<u64>; 2],
    size: usize,
    /// Number of requests that were removed because there was too much. Counted on staging only, for the journal.
    dropped: u64,
}

impl AccountRequests {
    /// `is_durable` is false for an ephemeral store.
    pub fn new(deployment: Deployment, is_durable: bool) -> Self {
        let capacity = if is_durable { CAPACITY } else { OF_EPHEMERAL };
        // Random, because the ids of another process's requests must not name other requests here.
        let first = getrandom::u64().expect("the operating system has random bytes") >> 16;
        let lists = Lists { capacity, requests: BTreeMap::new(), accounts: HashMap::new(), size: 0, next: first };
        Self { keeps_all: deployment == Deployment::Staging, lists: Mutex::new(lists) }
    }

    /// Returns whether requests with this status are kept. In production, this is all that a successful request costs.
    pub fn keeps(&self, status: StatusCode) -> bool {
        self.keeps_all || status.as_u16() >= 400
    }

    pub fn add(&self, mut request: RecordedRequest) -> Arc<RecordedRequest> {
        let mut lists = self.lists.lock();
        request.id = lists.next;
        lists.next += 1;
        let (account, is_inactive, size) = (request.owner.account, request.owner.is_key_inactive, size(&request));
        let of = lists.accounts.entry(account).or_default();
        of.requests[usize::from(is_inactive)].push_back(request.id);
        of.size += size;
        lists.size += size;
        let request = Arc::new(request);
        lists.requests.insert(request.id, Arc::clone(&request));
        while let Some(oldest) = lists.excess(account) {
            lists.remove(oldest, self.keeps_all);
        }
        request
    }

    /// Returns the requests of an account, latest first.
    pub fn of(&self, account: AccountId) -> Vec<Arc<RecordedRequest>> {
        let lists = self.lists.lock();
        let Some(of) = lists.accounts.get(&account) else { return Vec::new() };
        let mut ids: Vec<_> = of.requests.iter().flatten().collect();
        ids.sort_unstable();
        ids.into_iter().rev().filter_map(|id| lists.requests.get(id).cloned()).collect()
    }

    /// Returns the number of requests of the account that are no longer kept, since the start or [`Self::forget`]. 0 in
    /// production.
    pub fn dropped(&self, account: AccountId) -> u64 {
        self.lists.lock().accounts.get(&account).map_or(0, |of| of.dropped)
    }

    /// Returns a request of the account. `None` if it is another account's, or no longer kept.
    pub fn find(&self, account: AccountId, id: u64) -> Option<Arc<RecordedRequest>> {
        self.lists.lock().requests.get(&id).filter(|request| request.owner.account == account).cloned()
    }

    /// Deletes the requests of an account.
    pub fn forget(&self, account: AccountId) {
        let mut lists = self.lists.lock();
        let Some(of) = lists.accounts.remove(&account) else { return };
        lists.size -= of.size;
        for id in of.requests.iter().flatten() {
            lists.requests.remove(id);
        }
    }

    /// Deletes the requests of deleted accounts. Never ends.
    pub async fn follow_deletions(&self, store: &Store) {
        loop {
            tokio::time::sleep(WATCH).await;
            let accounts: Vec<_> = self.lists.lock().accounts.keys().copied().collect();
            // If the store fails, the next check repeats this one.
            if !accounts.is_empty()
                && let Ok(deleted) = store.deleted_among(accounts).await
            {
                deleted.into_iter().for_each(|account| self.forget(account));
            }
        }
    }
}

impl Lists {
    /// Returns the request to remove after `account` got another, if there is too much.
    fn excess(&self, account: AccountId) -> Option<u64> {
        let of = self.accounts.get(&account)?;
        match of.requests.iter().zip(self.capacity.requests).find(|(list, limit)| list.len() > *limit) {
            Some((list, _)) => list.front().copied(),
            None if of.size > self.capacity.of_account => of.oldest(),
            None => self.requests.first_key_value().filter(|_| self.size > self.capacity.of_all).map(|(id, _)| *id),
        }
    }

    /// Removes the oldest request of a list, and an account without requests, unless its removed requests are counted.
    fn remove(&mut self, id: u64, counts_dropped: bool) {
        let request = self.requests.remove(&id).expect("listed requests are kept");
        let of = self.accounts.get_mut(&request.owner.account).expect("requests are listed");
        of.requests[usize::from(request.owner.is_key_inactive)].pop_front();
        of.size -= size(&request);
        of.dropped += u64::from(counts_dropped);
        self.size -= size(&request);
        if of.oldest().is_none() && of.dropped == 0 {
            self.accounts.remove(&request.owner.account);
        }
    }
}

impl OfAccount {
    fn oldest(&self) -> Option<u64> {
        self.requests.iter().filter_map(VecDeque::front).min().copied()
    }
}

fn size(request: &RecordedRequest) -> usize {
    OVERHEAD + size_of::<RecordedRequest>() + request.texts().map(str::len).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::super::record::{Exchange, RedactedText, SHOWN};
    use super::*;
    use crate::api::operations::Listener;
    use crate::domain::api_key::KeyOwner;
    use crate::domain::{KeyId, Timestamp};

    /// A request whose heads and bodies have these sizes.
    fn request(account: i64, sizes: [usize; 4]) -> RecordedRequest {
        let [request_head, response_head, request_body, response_body] =
            sizes.map(|size| RedactedText { text: "x".repeat(size).into(), is_cut: false });
        RecordedRequest {
            id: 0,
            owner: KeyOwner { account: AccountId(account), key: KeyId(1), is_key_inactive: false },
            at: Timestamp::from_milliseconds(0),
            took: Duration::ZERO,
            listener: Listener::Store,
            operation: None,
            line: RedactedText::default(),
            status: Some(200),
            loss: OnceLock::new(),
            error: None,
            request_id: RedactedText::default(),
            simulated: None,
            is_replayed: false,
            exchange: Some(Exchange {
                request_head,
                response_head,
                request_body: Some(request_body),
                response_body: Some(response_body),
            }),
        }
    }

    fn with_inactive_key(account: i64, sizes: [usize; 4]) -> RecordedRequest {
        let request = request(account, sizes);
        RecordedRequest { owner: KeyOwner { is_key_inactive: true, ..request.owner }, ..request }
    }

    fn staging() -> AccountRequests {
        AccountRequests::new(Deployment::Staging, true)
    }

    /// The positions of an account's requests in the order of all that were added, latest first.
    fn numbers(requests: &AccountRequests, account: i64, added: u64) -> Vec<u64> {
        let first = requests.lists.lock().next - added;
        requests.of(AccountId(account)).iter().map(|request| request.id - first).collect()
    }

    fn size_of_account(requests: &AccountRequests, account: i64) -> usize {
        requests.of(AccountId(account)).iter().map(|request| size(request)).sum()
    }

    /// The counted sizes are those of the requests.
    fn assert_consistent(requests: &AccountRequests) {
        let lists = requests.lists.lock();
        assert_eq!(lists.size, lists.requests.values().map(|request| size(request)).sum::<usize>());
        assert_eq!(lists.size, lists.accounts.values().map(|of| of.size).sum::<usize>());
        let listed: usize =
            lists.accounts.values().map(|of| of.requests.iter().map(VecDeque::len).sum::<usize>()).sum();
        assert_eq!(listed, lists.requests.len());
        let is_needed = |of: &OfAccount| of.oldest().is_some() || of.dropped > 0;
        assert!(lists.accounts.values().all(is_needed), "accounts without requests take no memory");
        assert!(lists.size <= OF_ALL && lists.accounts.values().all(|of| of.size <= OF_ACCOUNT));
    }

    #[test]
    fn account_keeps_its_latest_hundred_requests() {
        for (deployment, dropped) in [(Deployment::Staging, 5), (Deployment::Production, 0)] {
            let requests = AccountRequests::new(deployment, true);
            for _ in 0..105 {
                requests.add(request(1, [10; 4]));
            }
            assert_eq!(numbers(&requests, 1, 105), (5..105).rev().collect::<Vec<_>>());
            assert_eq!((requests.dropped(AccountId(1)), requests.dropped(AccountId(2))), (dropped, 0));
            assert_consistent(&requests);
        }
    }

    #[test]
    fn requests_with_an_inactive_key_have_a_list_of_their_own() {
        let requests = staging();
        requests.add(request(1, [10; 4]));
        for _ in 0..25 {
            requests.add(with_inactive_key(1, [SHOWN, 100, 0, 0]));
        }
        assert_eq!(numbers(&requests, 1, 26), (6..26).rev().chain([0]).collect::<Vec<_>>());
        assert_consistent(&requests);
    }

    #[test]
    fn ephemeral_store_keeps_10_000_requests_of_an_account() {
        let requests = AccountRequests::new(Deployment::Staging, false);
        for _ in 0..25 {
            requests.add(with_inactive_key(1, [10; 4]));
        }
        for _ in 0..10_001 {
            requests.add(request(1, [10; 4]));
        }
        assert_eq!((requests.of(AccountId(1)).len(), requests.dropped(AccountId(1))), (10_025, 1));
    }

    #[test]
    fn account_takes_a_mebibyte_at_most() {
        let requests = staging();
        let largest = size(&request(1, [SHOWN; 4]));
        for _ in 0..20 {
            requests.add(request(1, [SHOWN; 4]));
        }
        let fit = (OF_ACCOUNT / largest) as u64;
        assert_eq!(numbers(&requests, 1, 20), (20 - fit..20).rev().collect::<Vec<_>>());
        // Filled to the last byte, and one more.
        let rest = OF_ACCOUNT - size_of_account(&requests, 1) - size(&request(1, [0; 4]));
        requests.add(request(1, [rest.min(SHOWN), rest.saturating_sub(SHOWN), 0, 0]));
        assert_eq!(size_of_account(&requests, 1), OF_ACCOUNT);
        requests.add(with_inactive_key(1, [0; 4]));
        assert_eq!(numbers(&requests, 1, 22), (21 - fit..22).rev().collect::<Vec<_>>(), "the oldest went");
        assert_consistent(&requests);
    }

    #[test]
    fn all_accounts_take_sixteen_mebibytes_at_most() {
        let requests = staging();
        for account in 0..40 {
            for _ in 0..20 {
                requests.add(request(account, [SHOWN; 4]));
            }
            assert_consistent(&requests);
        }
        assert!(requests.lists.lock().size > OF_ALL - size(&request(0, [SHOWN; 4])), "the memory is used");
        assert!(requests.of(AccountId(15)).is_empty() && requests.of(AccountId(39)).len() == 15);
        // Many accounts with one small request each.
        for account in 0..100_000 {
            requests.add(request(account, [0; 4]));
        }
        assert_consistent(&requests);
        assert_eq!(requests.lists.lock().requests.len(), OF_ALL / size(&request(0, [0; 4])));
        assert_eq!(requests.of(AccountId(99_999)).len(), 1);
    }

    #[test]
    fn production_forgets_accounts_without_requests() {
        let requests = AccountRequests::new(Deployment::Production, true);
        let fit = OF_ALL / size(&request(0, [0; 4]));
        for account in 0..2 * fit as i64 {
            requests.add(request(account, [0; 4]));
        }
        assert_consistent(&requests);
        assert_eq!(requests.lists.lock().accounts.len(), fit);
        assert_eq!(requests.dropped(AccountId(0)), 0);
    }

    #[test]
    fn account_is_forgotten() {
        let requests = staging();
        for account in [1, 2] {
            requests.add(request(account, [10; 4]));
            requests.add(with_inactive_key(account, [10; 4]));
        }
        let id = requests.of(AccountId(1))[0].id;
        assert!(requests.find(AccountId(1), id).is_some());
        assert!(requests.find(AccountId(2), id).is_none(), "it is another account's");
        requests.forget(AccountId(1));
        requests.forget(AccountId(3));
        assert!(requests.of(AccountId(1)).is_empty() && requests.find(AccountId(1), id).is_none());
        assert_eq!(requests.of(AccountId(2)).len(), 2);
        assert_consistent(&requests);
    }
}
