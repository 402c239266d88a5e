//! The callers of operations: their keys or sessions, their rate limits and permissions.

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};

use super::admission::keys::{Authentication, CachedKey};
use super::admission::rate_limit::Quota;
use super::client::Peer;
use super::error::{ApiError, Code};
use super::operations::{Operation, Permission};
use super::state::Api;
use crate::domain::api_key::KeyOwner;
use crate::domain::{AccountId, Role};

/// The caller of an operation, as far as it is known.
#[derive(Debug)]
pub struct Caller<'r> {
    pub peer: &'r Peer,
    identity: Identity,
}

#[derive(Debug)]
enum Identity {
    /// A program with an API key, unknown until it is looked up. The owner of an inactive one is rejected, but sees the request
    /// in the console.
    Key(Authentication),
    /// A user signed in to the console.
    User(AccountId, Role),
}

impl<'r> Caller<'r> {
    pub const fn unknown(peer: &'r Peer) -> Self {
        Self { peer, identity: Identity::Key(Authentication::Unknown) }
    }

    pub const fn signed_in(account: AccountId, role: Role, peer: &'r Peer) -> Self {
        Self { peer, identity: Identity::User(account, role) }
    }

    /// The account. `None` before the API key is found to be valid.
    pub fn account(&self) -> Option<AccountId> {
        match &self.identity {
            Identity::User(account, _) => Some(*account),
            Identity::Key(_) => self.key().map(|key| key.grant.account),
        }
    }

    pub fn role(&self) -> Role {
        match &self.identity {
            Identity::User(_, role) => *role,
            Identity::Key(_) => self.key().map_or(Role::Customer, |key| key.grant.role),
        }
    }

    /// The valid API key. `None` before it is found to be valid, and for users of the console.
    pub fn key(&self) -> Option<&CachedKey> {
        if let Identity::Key(Authentication::Valid(key)) = &self.identity { Some(key) } else { None }
    }

    /// The owner of the API key, valid or not. `None` for an unknown key, and for users of the console.
    pub fn key_owner(&self) -> Option<KeyOwner> {
        match &self.identity {
            Identity::Key(Authentication::Inactive(owner)) => Some(*owner),
            _ => self.key().map(|key| key.grant.owner(false)),
        }
    }

    /// Checks the API key, and returns its account. Accepts a user of the console.
    pub async fn authenticate(&mut self, api: &Api, headers: &HeaderMap) -> Result<AccountId, ApiError> {
        if let Identity::Key(_) = self.identity {
            self.identity = Identity::Key(api.api_keys.authenticate(presented_key(headers)?).await?);
        }
        self.account().ok_or_else(invalid)
    }

    /// Counts a request against the rate limit of its account. `None` without a limit, and for lists on pages, so that users
    /// can see what a program that exhausted it is doing.
    pub fn count(&self, api: &Api, operation: Operation) -> Option<Quota> {
        let is_list_on_page = matches!(self.identity, Identity::User(..)) && *operation.method() == Method::GET;
        api.rate_limits.as_ref().filter(|_| !is_list_on_page).zip(self.account()).map(|(limits, it)| limits.take(it))
    }

    /// Checks the permission to call `operation`.
    pub fn check_permission(&self, operation: Operation) -> Result<(), ApiError> {
        if self.key().is_some_and(|key| key.grant.read_only) && *operation.method() != Method::GET {
            return Err(read_only());
        }
        if operation.permission() == Permission::Staff && self.role() != Role::Staff {
            return Err(ApiError::new(Code::Forbidden, "Only staff may do this."));
        }
        Ok(())
    }
}

pub fn presented_key(headers: &HeaderMap) -> Result<&[u8], ApiError> {
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

pub fn read_only() -> ApiError {
    ApiError::new(Code::Forbidden, "This API key may only read.")
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
