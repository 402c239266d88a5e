//! The latest failed requests of each account, which the console shows.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::HeaderValue;
use quick_cache::sync::Cache;

use super::error::ApiError;
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
    pub status: u16,
    pub code: &'static str,
    request_id: HeaderValue,
}

impl FailedRequest {
    pub fn new(at: Timestamp, operation: Operation, error: &ApiError, request_id: &HeaderValue) -> Self {
        let (code, status) = error.code();
        Self { at, operation, status: status.as_u16(), code, request_id: request_id.clone() }
    }

    pub fn request_id(&self) -> &str {
        self.request_id.to_str().unwrap_or_default()
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
