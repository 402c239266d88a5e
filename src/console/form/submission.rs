//! Form submissions.

use std::error::Error;
use std::mem;

use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use bounded_http::BodyTimeout;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::api::input::query_and_body::integer;
use crate::console::PageError;
use crate::domain::account::NewPassword;
use crate::domain::{Invalid, Secret};

/// Maximum size of a form, in bytes: the longest message has 10,000 characters of up to 12 bytes each when encoded.
const SIZE: usize = 128 * 1024;

/// Maximum number of fields that are read. The orders page has a box for each of 100 orders. 15,000 take a millisecond.
const FIELDS: usize = 128;

/// The fields of a form (`application/x-www-form-urlencoded`, URL standard, section 5), and their errors.
///
/// Has no `Debug`, because some fields are passwords.
#[derive(Default)]
pub struct Form {
    fields: Vec<(String, String)>,
    errors: Vec<(&'static str, String)>,
}

impl Form {
    /// Returns a form with these fields.
    pub fn of(fields: &[(&str, &str)]) -> Self {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { fields, errors: Vec::new() }
    }

    /// Decodes the query of an address, which has the same encoding.
    pub fn of_query(uri: &Uri) -> Self {
        Self::decode(uri.query().unwrap_or_default().as_bytes())
    }

    fn decode(bytes: &[u8]) -> Self {
        Self { fields: form_urlencoded::parse(bytes).into_owned().take(FIELDS).collect(), errors: Vec::new() }
    }

    pub const fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns the value of a field. Empty if there is no such field.
    pub fn get(&self, name: &str) -> &str {
        self.fields.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// Returns the values of all fields with this name, such as checked boxes.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.fields.iter().filter(move |(found, _)| found == name).map(|(_, value)| &**value)
    }

    /// Returns the filled-in fields as a query, except those with these names.
    pub fn without(&self, names: &[&str]) -> String {
        let kept = self.fields.iter().filter(|(name, value)| !value.is_empty() && !names.contains(&&**name));
        form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).finish()
    }

    /// Returns the value for the request shown beside the form: `example` if the field is empty.
    pub fn or_example<'v>(&'v self, name: &str, example: &'v str) -> &'v str {
        Some(self.get(name)).filter(|value| !value.is_empty()).unwrap_or(example)
    }

    /// Like [`Self::or_example`], as JSON: a number, or a string if it is not an integer.
    pub fn integer_or_example(&self, name: &str, example: &str) -> serde_json::Value {
        let text = self.or_example(name, example).trim();
        integer(text).map_or_else(|| text.into(), Into::into)
    }

    /// Returns the error of a field, to show beside it.
    pub fn error(&self, name: &str) -> Option<&str> {
        self.errors.iter().find(|(found, _)| *found == name).map(|(_, error)| &**error)
    }

    pub fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Returns the status of the page that shows the form: 422 if a field has an error.
    pub fn status(&self) -> StatusCode {
        if self.has_errors() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK }
    }

    pub fn refuse(&mut self, name: &'static str, why: impl Into<String>) {
        self.errors.push((name, why.into()));
    }

    /// Parses a field. If it has no value, refuses it: as `missing` if the field is blank ("Enter a name."), otherwise with
    /// the reason ("The name has 300 characters; …").
    pub fn parse<T>(
        &mut self,
        name: &'static str,
        missing: &str,
        what: &str,
        parse: impl FnOnce(String) -> Result<T, Invalid>,
    ) -> Option<T> {
        if self.get(name).trim().is_empty() {
            self.refuse(name, missing);
        }
        self.parse_optional(name, what, parse)
    }

    /// Like [`Self::parse`], for a field that may be blank. Returns `None` without an error if it is.
    pub fn parse_optional<T>(
        &mut self,
        name: &'static str,
        what: &str,
        parse: impl FnOnce(String) -> Result<T, Invalid>,
    ) -> Option<T> {
        let value = Some(self.get(name).to_owned()).filter(|value| !value.trim().is_empty())?;
        parse(value).map_err(|invalid| self.refuse(name, format!("{what} {invalid}."))).ok()
    }

    /// Returns a password, which no page shows again. Refuses an empty one as `missing`.
    pub fn password(&mut self, name: &'static str, missing: &str) -> Option<Secret> {
        let given = Some(Secret::new(self.get(name))).filter(|given| !given.expose().is_empty());
        if given.is_none() {
            self.refuse(name, missing);
        }
        given
    }

    /// Parses a new password, like [`Self::parse`].
    pub fn new_password(&mut self, name: &'static str, missing: &str, what: &str) -> Option<NewPassword> {
        let parsed = NewPassword::parse(&self.password(name, missing)?);
        parsed.map_err(|invalid| self.refuse(name, format!("{what} {invalid}."))).ok()
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

    async fn from_request(request: Request, _: &S) -> Result<Self, PageError> {
        let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(PageError::unsupported_media_type());
        }
        let body = request.into_body().collect().await.expect("the middleware has read it");
        Ok(Self::decode(&body.to_bytes()))
    }
}
