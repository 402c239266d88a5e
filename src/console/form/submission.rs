//! Form submissions.

use std::error::Error;
use std::mem;

use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use bounded_http::BodyTimeout;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::api::Cause;
use crate::api::input::query_and_body::integer;
use crate::console::error::PageError;
use crate::domain::account::NewPassword;
use crate::domain::{Invalid, Secret};

/// Maximum size of a form, in bytes: the longest message has 10,000 characters of up to 12 bytes each when encoded.
const SIZE: usize = 128 * 1024;

/// Maximum number of fields that are read. The orders page has a box for each of 100 orders. 15,000 take a millisecond.
const FIELDS: usize = 128;

/// The fields of a form (`application/x-www-form-urlencoded`, URL standard, section 5).
///
/// Has no `Debug`, because some fields are passwords.
#[derive(Default)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Parses the query of an address, which has the same encoding.
    pub fn of_query(uri: &Uri) -> Self {
        Self::parse(uri.query().unwrap_or_default().as_bytes())
    }

    pub fn parse(bytes: &[u8]) -> Self {
        Self(form_urlencoded::parse(bytes).into_owned().take(FIELDS).collect())
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of a field. Empty if there is no such field.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// Returns the values of all fields with this name, such as checked boxes.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| &**value)
    }

    /// Returns the filled-in fields as a query, except those with these names.
    pub fn without(&self, names: &[&str]) -> String {
        let kept = self.0.iter().filter(|(name, value)| !value.is_empty() && !names.contains(&&**name));
        form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).finish()
    }

    pub fn secret(&self, name: &str) -> Secret {
        Secret::new(self.get(name))
    }

    /// A password field, whose value is never shown again. Its error is `missing` if the field is empty.
    pub fn password(&self, name: &str, missing: &str) -> Field {
        Field { error: self.get(name).is_empty().then(|| missing.to_owned()), ..Field::default() }
    }

    /// Parses a new password. Returns its field and the password, or `None` if the field has an error.
    pub fn new_password(&self, name: &str, missing: &str, what: &str) -> (Field, Option<NewPassword>) {
        let mut field = self.password(name, missing);
        let parsed = NewPassword::parse(&self.secret(name));
        if let Err(invalid) = &parsed {
            field.error.get_or_insert_with(|| format!("{what} {invalid}."));
        }
        (field, parsed.ok())
    }

    /// Returns a field to parse, and to show again if that fails.
    pub fn field(&self, name: &str) -> Field {
        Field { value: self.get(name).to_owned(), error: None }
    }
}

/// Reads the body of a request, and leaves it there. The page then knows who has sent it, and not who began to send it.
pub async fn read(request: &mut Request) -> Result<(), PageError> {
    match Limited::new(mem::take(request.body_mut()), SIZE).collect().await {
        Ok(body) => *request.body_mut() = body.to_bytes().into(),
        Err(error) if error.is::<LengthLimitError>() => return Err(PageError::too_large()),
        Err(error) if error.source().is_some_and(<dyn Error>::is::<BodyTimeout>) => return Err(PageError::timeout()),
        // Its chunks are malformed, or the connection broke.
        Err(_) => return Err(PageError::bad_request("The form could not be read completely.")),
    }
    Ok(())
}

impl<S: Sync> FromRequest<S> for Form {
    type Rejection = PageError;

    async fn from_request(mut request: Request, _: &S) -> Result<Self, PageError> {
        let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(PageError::unsupported_media_type());
        }
        let body = mem::take(request.body_mut()).collect().await;
        Ok(Self::parse(&body.map_err(|error| PageError::internal(Cause(error.to_string())))?.to_bytes()))
    }
}

/// A field of a form: its value and its error.
#[derive(Default)]
pub struct Field {
    pub value: String,
    pub error: Option<String>,
}

/// The status of the page that shows `fields`: 422 if one has an error.
pub fn status(fields: &[&Field]) -> StatusCode {
    if fields.iter().any(|field| field.error.is_some()) { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK }
}

impl Field {
    pub fn new(value: impl Into<String>) -> Self {
        Self { value: value.into(), error: None }
    }

    /// Returns the value for the request shown beside the form: `example` if the field is empty.
    pub fn or_example<'v>(&'v self, example: &'v str) -> &'v str {
        if self.value.is_empty() { example } else { &self.value }
    }

    /// Like [`Self::or_example`], as JSON: a number, or a string if it is not an integer.
    pub fn integer_or_example(&self, example: &str) -> serde_json::Value {
        let text = self.or_example(example).trim();
        integer(text).map_or_else(|| text.into(), Into::into)
    }

    /// Returns the parsed value. If there is none, sets the error: `missing` if the field is blank ("Enter a name."),
    /// otherwise the reason ("The name has 300 characters; …").
    pub fn parse<T>(
        &mut self,
        missing: &str,
        what: &str,
        parse: impl FnOnce(String) -> Result<T, Invalid>,
    ) -> Option<T> {
        if self.value.trim().is_empty() {
            self.error = Some(missing.to_owned());
            return None;
        }
        self.parse_optional(what, parse)
    }

    /// Like [`Self::parse`], for a field that may be blank. Returns `None` without an error if it is.
    pub fn parse_optional<T>(&mut self, what: &str, parse: impl FnOnce(String) -> Result<T, Invalid>) -> Option<T> {
        let value = Some(self.value.clone()).filter(|value| !value.trim().is_empty())?;
        parse(value).map_err(|invalid| self.error = Some(format!("{what} {invalid}."))).ok()
    }
}
