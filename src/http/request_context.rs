//! The account and quota of a request, which extractors pass to the middleware.

use std::sync::{Arc, OnceLock};

use axum::http::Extensions;

use super::rate_limit::Quota;
use crate::domain::AccountId;

/// An extension of requests that are logged or rate limited.
#[derive(Clone, Debug, Default)]
pub struct RequestContext(Arc<Values>);

#[derive(Debug, Default)]
struct Values {
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

    /// Stores the account of a request, if the request has a context.
    pub fn set_account(extensions: &Extensions, account: AccountId) {
        if let Some(Self(values)) = extensions.get() {
            // A request has one account.
            let _ = values.account.set(account);
        }
    }

    /// Stores the remaining quota of a request's account, if the request has a context.
    pub fn set_quota(extensions: &Extensions, quota: Quota) {
        if let Some(Self(values)) = extensions.get() {
            // A request is counted once.
            let _ = values.quota.set(quota);
        }
    }

    pub fn account(&self) -> Option<AccountId> {
        self.0.account.get().copied()
    }

    pub fn quota(&self) -> Option<Quota> {
        self.0.quota.get().copied()
    }
}
