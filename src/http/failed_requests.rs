//! The latest failed requests of each account, which the console shows.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::HeaderValue;
use quick_cache::sync::Cache;

use super::error::Code;
use super::operations::Operation;
use crate::domain::{AccountId, Timestamp};

/// Maximum number of requests kept for an account.
const KEPT: usize = 20;

/// Maximum number of accounts with requests. With the longest request ids, they take 5 MB.
const ACCOUNTS: usize = 1_000;

/// A request that got an error after its API key was accepted.
#[derive(Clone, Debug)]
pub struct FailedRequest {
    pub at: Timestamp,
    pub operation: Operation,
    pub code: Code,
    /// True if the request got a simulation.
    pub is_simulated: bool,
    /// Not a [`HeaderValue`], which would keep the whole head of the request in memory, with the API key.
    pub request_id: Box<str>,
}

impl FailedRequest {
    pub fn new(at: Timestamp, operation: Operation, code: Code, is_simulated: bool, request_id: &HeaderValue) -> Self {
        let request_id = request_id.to_str().unwrap_or_default().into();
        Self { at, operation, code, is_simulated, request_id }
    }
}

/// Requests that failed since the start of the process, per account.
#[derive(Debug)]
pub struct FailedRequests(Cache<AccountId, Arc<Mutex<VecDeque<FailedRequest>>>>);

impl FailedRequests {
    pub fn new() -> Self {
        Self(Cache::new(ACCOUNTS))
    }

    pub fn add(&self, account: AccountId, request: FailedRequest) {
        let Ok(requests) = self.0.get_or_insert_with(&account, || Ok::<_, Infallible>(Arc::default()));
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.truncate(KEPT - 1);
        requests.push_front(request);
    }

    /// Returns the requests of an account, latest first.
    pub fn of(&self, account: AccountId) -> Vec<FailedRequest> {
        let requests = self.0.get(&account);
        requests.map_or_else(Vec::new, |requests| {
            requests.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn kept_request_does_not_keep_the_head_that_it_arrived_in() {
        let head = Bytes::from(b"authorization: Bearer secret\r\nx-request-id: mine".to_vec());
        let id = HeaderValue::from_maybe_shared(head.slice(head.len() - 4..)).unwrap();
        let at = Timestamp::from_milliseconds(0);
        let request = FailedRequest::new(at, Operation::GetPet, Code::NotFound, false, &id);
        drop(id);
        assert_eq!(&*request.request_id, "mine");
        assert!(head.is_unique());
    }
}
