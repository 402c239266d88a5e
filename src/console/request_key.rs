//! What keeps a form that comes twice from being carried out twice.

use axum::http::{HeaderValue, StatusCode};

use super::api_call::ApiCall;
use super::form::Form;
use crate::domain::IdempotencyKey;

/// The `Idempotency-Key` of the API's request that a form stands for. It is made with the form's page and hidden in it, so
/// that reloading the page after it, which sends the form again, gets the first answer again.
pub struct RequestKey(String);

impl RequestKey {
    pub const FIELD: &'static str = "idempotencyKey";

    pub fn generate() -> Self {
        let mut random = [0; 16];
        getrandom::fill(&mut random).expect("the operating system has random bytes");
        Self(uuid::Builder::from_random_bytes(random).into_uuid().to_string())
    }

    /// The key that a form carries; a new one where it carries none, which no page of ours does.
    pub fn of(fields: &Form) -> Self {
        let carried = fields.get(Self::FIELD);
        match IdempotencyKey::parse(carried.as_bytes()) {
            Ok(_) => Self(carried.to_owned()),
            Err(_) => Self::generate(),
        }
    }

    /// The key of the form that is shown after `api_call`. It stays until the request is carried out: where it is not
    /// known what became of it, sending it once more settles that.
    pub fn after(self, api_call: &ApiCall) -> Self {
        let belongs_to_another = api_call.status == StatusCode::UNPROCESSABLE_ENTITY;
        if api_call.status.is_success() || belongs_to_another { Self::generate() } else { self }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As a header has it.
    pub fn to_header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.0).expect("a key has visible ASCII characters only")
    }
}
