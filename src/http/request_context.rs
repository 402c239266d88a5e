//! What the extractors learn about a request, for its log line and the headers of its response.

use std::sync::{Arc, OnceLock};

use axum::http::Extensions;

use super::rate_limit::Quota;
use crate::domain::AccountId;

/// An extension of requests that are logged or rate limited.
#[derive(Clone, Debug, Default)]
pub struct RequestContext(Arc<Learned>);

#[derive(Debug, Default)]
struct Learned {
    account: OnceLock<AccountId>,
    quota: OnceLock<Quota>,
}

impl RequestContext {
    /// Attaches an empty context to a request.
    pub fn attach(extensions: &mut Extensions) -> Self {
        let context = Self::default();
        extensions.insert(context.clone());
        context
    }

    /// Stores whose request it is, if the request has a context.
    pub fn set_account(extensions: &Extensions, account: AccountId) {
        if let Some(Self(learned)) = extensions.get() {
            // A request has one account.
            let _ = learned.account.set(account);
        }
    }

    /// Stores what is left of the account's rate limit, if the request has a context.
    pub fn set_quota(extensions: &Extensions, quota: Quota) {
        if let Some(Self(learned)) = extensions.get() {
            // A request is counted once.
            let _ = learned.quota.set(quota);
        }
    }

    pub fn account(&self) -> Option<AccountId> {
        self.0.account.get().copied()
    }

    pub fn quota(&self) -> Option<Quota> {
        self.0.quota.get().copied()
    }
}
