//! The operations: requests, responses, and the layers around them.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, FromRequest, FromRequestParts, State},
    http::{
        HeaderName, HeaderValue, Request, StatusCode,
        header::{AUTHORIZATION, InvalidHeaderValue, LINK, LOCATION},
        request::Parts,
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, de};
use tower::ServiceBuilder;
use tower_http::{
    catch_panic::CatchPanicLayer,
    request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer},
    set_header::SetResponseHeaderLayer,
};
use uuid::Uuid;

use crate::{
    error::{ApiError, panicked},
    store::{Pet, Status, Store},
};

const BODY_LIMIT: usize = 64 * 1024;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub struct Api {
    store: Store,
    /// Base of links.
    base: String,
}

impl Api {
    pub fn new(store: Store, base: String) -> Arc<Self> {
        Arc::new(Self { store, base })
    }
}

pub fn router(api: Arc<Api>) -> Result<Router, InvalidHeaderValue> {
    let base = &api.base;
    let docs = base.strip_suffix("/v1").unwrap_or(base);
    let links = format!(r#"<{docs}/docs/deprecations>; rel="deprecation", <{base}/pets>; rel="successor-version""#);
    let deprecated = ServiceBuilder::new()
        .layer(fixed_header("deprecation", HeaderValue::from_static("@1795132800")))
        .layer(fixed_header("sunset", HeaderValue::from_static("Thu, 05 Dec 2030 00:00:00 GMT")))
        .layer(fixed_header("link", HeaderValue::from_str(&links)?));
    let around = ServiceBuilder::new()
        .map_request(drop_invalid_request_id)
        .layer(SetRequestIdLayer::new(REQUEST_ID, MakeRequestUuid))
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        .layer(CatchPanicLayer::custom(panicked));
    Ok(Router::new()
        .route("/v1/pets", get(list_pets).post(create_pet))
        .route("/v1/pets/{petId}", get(get_pet).layer(deprecated))
        .route("/v1/messages", post(send_message))
        .fallback(async || ApiError::NoPath)
        .method_not_allowed_fallback(async || ApiError::WrongMethod)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(around)
        .with_state(api))
}

fn fixed_header(name: &'static str, value: HeaderValue) -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::overriding(HeaderName::from_static(name), value)
}

/// Removes a request id that is too long or not printable, so that the request gets a new one.
fn drop_invalid_request_id<B>(mut request: Request<B>) -> Request<B> {
    let valid = |id: &HeaderValue| id.len() <= 128 && !id.is_empty() && id.as_bytes().iter().all(u8::is_ascii_graphic);
    if request.headers().get(REQUEST_ID).is_some_and(|id| !valid(id)) {
        request.headers_mut().remove(REQUEST_ID);
    }
    request
}

// --- Requests -------------------------------------------------------------------------------------------------------

/// The account whose key the request has.
struct Account(i64);

impl FromRequestParts<Arc<Api>> for Account {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let credentials = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
        let (scheme, key) = credentials.split_once(' ').unwrap_or((credentials, ""));
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(ApiError::MissingKey);
        }
        api.store.account(key.trim()).await?.map(Self).ok_or(ApiError::InvalidKey)
    }
}

/// A JSON body.
#[derive(FromRequest)]
#[from_request(via(Json), rejection(ApiError))]
struct Body<T>(T);

#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(ApiError))]
struct Query<T>(T);

#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(ApiError))]
struct Path<T>(T);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PetQuery {
    #[serde(default)]
    limit: Limit,
    status: Option<Status>,
    #[serde(default)]
    after: i64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "u8")]
struct Limit(u8);

impl Default for Limit {
    fn default() -> Self {
        Self(20)
    }
}

impl TryFrom<u8> for Limit {
    type Error = &'static str;

    fn try_from(limit: u8) -> Result<Self, Self::Error> {
        if (1..=100).contains(&limit) { Ok(Self(limit)) } else { Err("a limit is from 1 to 100") }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewPet {
    pub name: Text<255, false>,
    #[serde(deserialize_with = "integer")]
    pub category_id: i64,
    #[serde(default)]
    pub status: Status,
}

#[derive(Deserialize)]
struct NewMessage {
    message: Text<10_000, true>,
}

/// A text of at most `MOST` characters that is not only white space. It has no control characters, except tabs and line
/// breaks if `LINES`.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub struct Text<const MOST: usize, const LINES: bool>(String);

impl<const MOST: usize, const LINES: bool> TryFrom<String> for Text<MOST, LINES> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // A text has at least as many bytes as characters.
        if text.len() > MOST && text.chars().count() > MOST {
            return Err(format!("a text has at most {MOST} characters"));
        }
        if text.chars().any(|c| c.is_control() && !(LINES && matches!(c, '\t' | '\n' | '\r'))) {
            return Err("a text has no control characters".into());
        }
        if text.trim().is_empty() {
            return Err("a text is not empty or only white space".into());
        }
        Ok(Self(text))
    }
}

impl<const MOST: usize, const LINES: bool> From<Text<MOST, LINES>> for String {
    fn from(text: Text<MOST, LINES>) -> Self {
        text.0
    }
}

/// Reads an integer. Accepts 3.0 as 3, because JSON does not distinguish them.
fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let number = serde_json::Number::deserialize(deserializer)?;
    let whole = |value: &f64| value.fract() == 0.0 && value.abs() < 2f64.powi(63);
    let rounded = || number.as_f64().filter(whole).map(|value| value as i64);
    number.as_i64().or_else(rounded).ok_or_else(|| de::Error::custom("not an integer of 64 bits"))
}

// --- The operations -------------------------------------------------------------------------------------------------

type Answer = Result<Response, ApiError>;

async fn list_pets(_: Account, State(api): State<Arc<Api>>, Query(query): Query<PetQuery>) -> Answer {
    let PetQuery { limit: Limit(limit), status, after } = query;
    // One more than requested, to know whether there is a next page.
    let mut pets = api.store.list(status, after, limit + 1).await?;
    if pets.len() <= limit.into() {
        return Ok(Json(pets).into_response());
    }
    pets.pop();
    let last = pets.last().map_or(after, |pet| pet.id);
    let filter = status.map_or(String::new(), |status| format!("&status={}", status.name()));
    let link = format!(r#"<{}/pets?limit={limit}{filter}&after={last}>; rel="next""#, api.base);
    Ok(([(LINK, link)], Json(pets)).into_response())
}

async fn create_pet(_: Account, State(api): State<Arc<Api>>, Body(new): Body<NewPet>) -> Answer {
    let pet: Pet = api.store.create(new).await?;
    let location = format!("{}/pets/{}", api.base, pet.id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(pet)).into_response())
}

async fn get_pet(_: Account, State(api): State<Arc<Api>>, Path(id): Path<i64>) -> Answer {
    let pet = api.store.get(id).await?.ok_or(ApiError::NoPet)?;
    Ok(Json(pet).into_response())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    id: String,
    message: String,
    status: &'static str,
    created_at: String,
}

async fn send_message(account: Account, State(api): State<Arc<Api>>, Body(new): Body<NewMessage>) -> Answer {
    let now = Timestamp::now();
    let id = format!("msg_{}", Uuid::now_v7().simple());
    let message = String::from(new.message);
    api.store.send(&id, account.0, &message, now.as_millisecond()).await?;
    let sent = Message { id, message, status: "queued", created_at: format!("{now:.3}") };
    Ok((StatusCode::ACCEPTED, Json(sent)).into_response())
}
