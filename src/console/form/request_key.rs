//! Keeps a form that is sent twice from being executed twice.

use axum::http::StatusCode;

use super::submission::Form;
use crate::domain::{IdempotencyKey, random};

/// The `Idempotency-Key` of the API call that a form makes. It is generated with the page and hidden in the form, so
/// that reloading the next page, which sends the form again, replays the first response.
pub struct RequestKey(String);

impl RequestKey {
    pub fn generate() -> Self {
        Self(uuid::Builder::from_random_bytes(random()).into_uuid().to_string())
    }

    /// Returns the key of a form. Generates one if there is none, which no form of ours omits.
    pub fn of(fields: &Form) -> Self {
        let carried = fields.get("idempotencyKey");
        match IdempotencyKey::parse(carried.as_bytes()) {
            Ok(_) => Self(carried.to_owned()),
            Err(_) => Self::generate(),
        }
    }

    /// Returns the key for one entry of a list, whose forms share this key.
    pub fn of_entry(&self, id: i64) -> Self {
        Self(format!("{}-{id}", self.0))
    }

    /// Returns the key for the form shown after an API call with the response `status`. It stays until the request is
    /// executed: if the outcome is unknown, sending the form again settles it.
    pub fn after(self, status: StatusCode) -> Self {
        let belongs_to_another = status == StatusCode::UNPROCESSABLE_ENTITY;
        if status.is_success() || belongs_to_another { Self::generate() } else { self }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}
