//! The callers of operations: their accounts and rate limits.

use std::sync::Arc;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};

use super::admission::keys::{Authentication, KeyHolder};
use super::admission::rate_limit::Quota;
use super::client::address::Peer;
use super::error::{ApiError, Code};
use super::operations::{Operation, Permission};
use super::prefer::delivery::Simulated;
use super::prefer::preferences::Preferences;
use super::state::Api;
use crate::domain::{AccountId, KeyId, Role};

/// The caller of an operation, as far as it is known. The log and the headers of the response need it.
#[derive(Debug)]
pub struct Caller<'r> {
    pub peer: &'r Peer,
    /// `None` before the API key is found to be valid.
    pub account: Option<AccountId>,
    pub role: Role,
    /// The valid API key. `None` before it is found to be valid, and for users of the console.
    pub key: Option<KeyId>,
    /// The holder of a key that is revoked or has expired. The caller is rejected.
    pub inactive_key: Option<KeyHolder>,
    /// `None` without a rate limit.
    pub quota: Option<Quota>,
    /// True if the key may only read.
    pub is_read_only: bool,
    /// The preferences of the key, on staging.
    pub preferences: Option<Arc<Preferences>>,
    /// The beginning of the body that the operation has read, on staging. `None` if it has read none.
    pub body: Option<Vec<u8>>,
    /// `None` unless the request got a simulation.
    pub simulated: Option<Box<Simulated>>,
}

impl<'r> Caller<'r> {
    pub const fn unknown(peer: &'r Peer) -> Self {
        Self {
            peer,
            account: None,
            role: Role::Customer,
            key: None,
            inactive_key: None,
            quota: None,
            is_read_only: false,
            preferences: None,
            body: None,
            simulated: None,
        }
    }

    /// A user signed in to the console.
    pub fn signed_in(account: AccountId, role: Role, peer: &'r Peer) -> Self {
        Self { account: Some(account), role, ..Self::unknown(peer) }
    }

    /// Finds the caller of a path without an operation for it, where no credential is needed.
    pub async fn recognize(&mut self, api: &Api, headers: &HeaderMap) {
        if let Ok(key) = presented_key(headers) {
            // Without the store, the caller is not recognized.
            _ = self.find_holder(api, key).await;
        }
    }

    /// Checks the API key, the rate limit of its account, and the permission to call `operation`. Returns the account.
    pub async fn admit(&mut self, api: &Api, operation: Operation, headers: &HeaderMap) -> Result<AccountId, ApiError> {
        let account = self.authenticate(api, headers).await?;
        if self.is_read_only && *operation.method() != Method::GET {
            return Err(ApiError::new(Code::Forbidden, "This API key may only read."));
        }
        if operation.permission() == Permission::Staff && self.role != Role::Staff {
            return Err(ApiError::new(Code::Forbidden, "Only staff may do this."));
        }
        Ok(account)
    }

    /// Checks the API key and the rate limit of its account. Accepts a caller whose account is known.
    async fn authenticate(&mut self, api: &Api, headers: &HeaderMap) -> Result<AccountId, ApiError> {
        if let Some(account) = self.account {
            return Ok(account);
        }
        let account = self.find_holder(api, presented_key(headers)?).await?;
        self.count(api, account)?;
        Ok(account)
    }

    /// Finds the account of an API key. Remembers the holder of an inactive key, which is rejected.
    async fn find_holder(&mut self, api: &Api, key: &[u8]) -> Result<AccountId, ApiError> {
        match api.api_keys.authenticate(key).await? {
            Authentication::Valid(key) => {
                (self.account, self.key) = (Some(key.grant.account), Some(key.grant.id));
                (self.role, self.is_read_only) = (key.grant.role, key.grant.read_only);
                self.preferences.clone_from(&key.preferences);
                Ok(key.grant.account)
            }
            Authentication::Inactive(holder) => {
                self.inactive_key = Some(holder);
                Err(invalid())
            }
            Authentication::Unknown => Err(invalid()),
        }
    }

    /// Counts a request against the rate limit of `account`. Rejects one that exceeds it.
    pub fn count(&mut self, api: &Api, account: AccountId) -> Result<(), ApiError> {
        let Some(limits) = &api.rate_limits else { return Ok(()) };
        limits.check(*self.quota.insert(limits.take(account)))
    }

    /// Writes the headers about the rate limit, if the request was counted.
    pub fn write_headers(&self, api: &Api, headers: &mut HeaderMap) {
        if let (Some(limits), Some(quota)) = (&api.rate_limits, self.quota) {
            limits.write_headers(quota, headers);
        }
    }
}

fn presented_key(headers: &HeaderMap) -> Result<&[u8], ApiError> {
    let mut presented = headers.get_all(AUTHORIZATION).iter();
    match (presented.next(), presented.next()) {
        (None, _) => Err(missing()),
        (Some(_), Some(_)) => Err(invalid()),
        (Some(credential), None) => bearer_token(credential.as_bytes()).ok_or_else(missing),
    }
}

/// Returns the token after the scheme `Bearer`, in any case (RFC 9110, section 11.1). `None` for another scheme.
fn bearer_token(credential: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = credential.split_at_checked("Bearer".len())?;
    let ends = rest.first().is_none_or(|&byte| byte == b' ');
    (scheme.eq_ignore_ascii_case(b"Bearer") && ends).then(|| rest.trim_ascii())
}

fn missing() -> ApiError {
    ApiError::new(Code::MissingApiKey, "An API key is needed: send it as `Authorization: Bearer <API_KEY>`.")
}

/// One message for every reason, because only the key's owner may learn why it is rejected.
pub fn invalid() -> ApiError {
    ApiError::new(Code::InvalidApiKey, "The API key is not valid here.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bearer_scheme_carries_a_token() {
        assert_eq!(bearer_token(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer_token(b"bEARER   abc"), Some(&b"abc"[..]));
        assert_eq!(bearer_token(b"Bearer"), Some(&b""[..]));
        for other in [&b""[..], b"Basic abc", b"Bearerabc", b"Bear"] {
            assert_eq!(bearer_token(other), None);
        }
    }
}
