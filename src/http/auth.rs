//! Credentials as extractors: an operation that needs a key has a [`Caller`] among its arguments.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use super::error::{ApiError, Code};
use super::request_context::RequestContext;
use super::state::Api;
use crate::domain::AccountId;

/// The account of the request's API key. Its rate limit allows the request.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub account: AccountId,
}

impl FromRequestParts<Api> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let mut presented = parts.headers.get_all(AUTHORIZATION).iter();
        let key = match (presented.next(), presented.next()) {
            (None, _) => return Err(missing()),
            (Some(_), Some(_)) => return Err(invalid()),
            (Some(credential), None) => bearer_token(credential.as_bytes()).ok_or_else(missing)?,
        };
        let account = api.api_keys.authenticate(key).await?.ok_or_else(invalid)?;
        RequestContext::set_account(&parts.extensions, account);
        if let Some(limits) = &api.rate_limits {
            let quota = limits.take(account);
            RequestContext::set_quota(&parts.extensions, quota);
            limits.check(quota)?;
        }
        Ok(Self { account })
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
fn invalid() -> ApiError {
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
