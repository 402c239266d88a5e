//! The pages of API keys: list, create, rotate, revoke.

use std::time::Duration;

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use crate::api::Operation;
use crate::api::input::query_and_body::integer;
use crate::api::prefer::preferences::Preferences;
use crate::console::form::{Form, Links, Path, Place, newest_first, pagination};
use crate::console::session::SignedIn;
use crate::console::shown::{SampleRequest, times};
use crate::console::{PageError, Site, page};
use crate::domain::api_key::{KeyName, KeyState, NewKey, Rotation};
use crate::domain::time::duration;
use crate::domain::{ApiKey, Invalid, KeyId, KeyRecord, PageLimit, PageQuery, grouped};

/// The lifetimes that the form offers: value and text.
const LIFETIMES: [(&str, &str); 4] = [("30d", "30 days"), ("90d", "90 days"), ("365d", "1 year"), ("never", "Never")];

/// The choices of a key's access: value and text.
const ACCESSES: [(&str, &str); 2] = [("write", "Read and write"), ("read", "Only read")];

/// The overlaps that the form offers: value and text. The old key keeps working until the overlap ends.
const OVERLAPS: [(&str, &str); 4] =
    [("24h", "24 hours"), ("1h", "1 hour"), ("7d", "7 days"), ("0s", "0 hours (stops at once)")];

#[derive(Template)]
#[template(path = "console/keys.html")]
struct List<'a> {
    site: Site<'a>,
    keys: Vec<Row>,
    status: Option<KeyState>,
    links: Links<i64>,
}

#[derive(Template)]
#[template(path = "console/key-new.html")]
struct New<'a> {
    site: Site<'a>,
    form: Form,
    opened: Opened,
}

#[derive(Template)]
#[template(path = "console/key-made.html")]
struct Made<'a> {
    site: Site<'a>,
    key: &'a str,
    /// Requests to try the key with.
    request: SampleRequest,
    /// The failures that requests with the key get.
    prefer: Option<String>,
    /// After a rotation, when the old key stops working.
    before: Option<String>,
}

#[derive(Template)]
#[template(path = "console/key-rotate.html")]
struct Rotate<'a> {
    site: Site<'a>,
    key: Row,
    opened: Opened,
}

/// The newest key when a form was opened. The form carries it, so that reloading the page of a new key, which sends the
/// form again, creates no second key.
struct Opened {
    /// The id of the newest key. 0 if there was none.
    newest: i64,
    /// The key that was created since then, if any.
    since: Option<KeyRecord>,
}

impl Opened {
    /// Reads the form, and the keys created since it was opened.
    async fn of(who: &SignedIn, fields: &Form) -> Result<Self, PageError> {
        let incomplete = || PageError::bad_request("The form is incomplete. Open its page again.");
        Self::since(who, Some(integer(fields.get("newest")).ok_or_else(incomplete)?)).await
    }

    /// `seen` is the newest key when the form was opened. `None` if it is opened now.
    async fn since(who: &SignedIn, seen: Option<i64>) -> Result<Self, PageError> {
        let now = who.api().clock.steady();
        let newest = who.api().store.list_keys_of(who.session.account, &PageQuery::newest(), now).await?.0.pop();
        let id = newest.as_ref().map_or(0, |key| key.id.0);
        Ok(Self { newest: id.max(seen.unwrap_or(0)), since: newest.filter(|_| seen.is_some_and(|seen| id > seen)) })
    }
}

#[derive(Template)]
#[template(path = "console/key-revoke.html")]
struct Revoke<'a> {
    site: Site<'a>,
    key: Row,
}

/// A key as pages show it.
struct Row {
    record: KeyRecord,
    last_used: Option<String>,
    state: KeyState,
    /// Number of requests to this process since its start.
    requests: String,
}

impl Row {
    fn new(record: KeyRecord, who: &SignedIn) -> Self {
        let (clock, keys) = (&who.api().clock, &who.api().api_keys);
        let last_used = record.last_use().max(keys.unstored_use(record.id)).map(|used| times::ago(used, clock.now()));
        Self { last_used, state: record.state(clock.steady()), requests: grouped(keys.requests(record.id)), record }
    }

    fn works(&self) -> bool {
        self.state == KeyState::Active
    }
}

pub async fn list(who: SignedIn, uri: Uri) -> Result<Response, PageError> {
    let parameters = Form::of_query(&uri);
    let status = pagination::filter(&parameters, "status", KeyState::parse)?;
    let place = Place::of_numbered(&parameters)?;
    let (store, account, now) = (&who.api().store, who.session.account, who.api().clock.steady());
    let read = |direction, after, limit| async move {
        store.list_keys_of(account, &PageQuery { limit, status, after, direction }, now).await
    };
    let (entries, links) = newest_first(place, PageLimit::default(), |key| key.id.0, read).await?;
    let keys = entries.into_iter().map(|key| Row::new(key, &who)).collect();
    let site = Site::new(&who, "API keys", "keys");
    Ok(page(StatusCode::OK, &List { site, keys, status, links }))
}

pub async fn new(who: SignedIn) -> Result<Response, PageError> {
    let opened = Opened::since(&who, None).await?;
    Ok(new_key(&who, StatusCode::OK, Form::of(&[("expiry", "90d"), ("access", "write")]), opened))
}

pub async fn create(who: SignedIn, mut form: Form) -> Result<Response, PageError> {
    let key = ApiKey::generate(who.api().store.deployment());
    let new = parse(&mut form, &key, &who);
    let opened = Opened::of(&who, &form).await?;
    let Some(new) = new else {
        return Ok(new_key(&who, form.status(), form, opened));
    };
    if opened.since.is_some() {
        return Ok(new_key(&who, StatusCode::CONFLICT, form, opened));
    }
    count_new(&who)?;
    let prefer = new.prefer.clone();
    who.api().store.create_key(new, who.actor()).await?;
    who.api().api_keys.note_change();
    Ok(made(&who, &key, prefer, None))
}

/// Parses the fields of a new key. `None` if one of them has an error.
fn parse(form: &mut Form, key: &ApiKey, who: &SignedIn) -> Option<NewKey> {
    let (deployment, now) = (who.api().store.deployment(), who.api().clock.steady());
    let name = form.parse("name", "Enter a name.", "The name", KeyName::parse);
    let lifetime = form.parse("expiry", "Choose when it expires.", "The time", |text| {
        if text == "never" { Ok(None) } else { choice(&text, &LIFETIMES).map(Some) }
    });
    let access = |text: String| offered(&text, &ACCESSES).map(|()| text == "read");
    let read_only = form.parse("access", "Choose an access.", "The access", access);
    let prefer = form.parse_optional("prefer", "The text", |text| Preferences::for_key(&text, deployment, now));
    let new = NewKey::of(key, who.session.account, name?, now, lifetime?);
    let new = NewKey { read_only: read_only?, prefer, ..new };
    (!form.has_errors()).then_some(new)
}

pub async fn confirm_rotation(who: SignedIn, Path(id): Path<String>) -> Result<Response, PageError> {
    let key = own_key(&who, &id).await?;
    let opened = Opened::since(&who, None).await?;
    Ok(rotation(&who, StatusCode::OK, key, opened))
}

pub async fn rotate(who: SignedIn, Path(id): Path<String>, fields: Form) -> Result<Response, PageError> {
    let before = own_key(&who, &id).await?;
    let overlap = choice(fields.get("overlap"), &OVERLAPS)
        .map_err(|invalid| PageError::bad_request(format!("The overlap {invalid}.")))?;
    let opened = Opened::of(&who, &fields).await?;
    if opened.since.is_some() {
        return Ok(rotation(&who, StatusCode::CONFLICT, before, opened));
    }
    count_new(&who)?;
    let key = ApiKey::generate(who.api().store.deployment());
    let replacement = Rotation::to(&key, who.api().clock.steady(), overlap);
    if who.api().store.rotate_key(before.record.id, replacement, who.actor()).await?.is_none() {
        let message = "This key has expired or been revoked, so it cannot be rotated. Create a new key.";
        return Err(PageError::not_found(message));
    }
    who.api().api_keys.note_change();
    let end = if overlap.is_zero() {
        "no longer works".to_owned()
    } else {
        let until = own_key(&who, &id).await?.record.expires_at.map(times::moment).unwrap_or_default();
        format!("works until {until}")
    };
    let end = format!("The old key, {}, {end}.", before.record.hint);
    Ok(made(&who, &key, before.record.prefer, Some(end)))
}

pub async fn confirm_revocation(who: SignedIn, Path(id): Path<String>) -> Result<Response, PageError> {
    let key = own_key(&who, &id).await?;
    Ok(page(StatusCode::OK, &Revoke { site: Site::new(&who, "Revoke an API key", "keys"), key }))
}

pub async fn revoke(who: SignedIn, Path(id): Path<String>) -> Result<Response, PageError> {
    let key = own_key(&who, &id).await?;
    // Otherwise a form that is sent again would invalidate the cached keys of all accounts.
    if key.state != KeyState::Revoked {
        who.api().store.revoke_key(key.record.id, who.actor()).await?;
        who.api().api_keys.note_change();
    }
    Ok(who.redirect("keys?notice=key-revoked"))
}

/// Counts a new key of the account. Fails if there were too many: keys are kept for ever.
fn count_new(who: &SignedIn) -> Result<(), PageError> {
    let counted = who.console.throttle.count_new_key(who.session.account, who.api().clock.steady());
    counted.map_err(|wait| PageError::too_many("new API keys", wait))
}

/// Returns the key in the path. Other accounts' keys are reported as not found.
async fn own_key(who: &SignedIn, id: &str) -> Result<Row, PageError> {
    let unknown = || PageError::not_found("You have no API key with this id.");
    let id = KeyId(integer(id).ok_or_else(unknown)?);
    let key = who.api().store.find_key_of(who.session.account, id).await?.ok_or_else(unknown)?;
    Ok(Row::new(key, who))
}

/// Parses one of the durations that a form offers.
fn choice(text: &str, options: &[(&str, &str)]) -> Result<Duration, Invalid> {
    offered(text, options)?;
    duration(text)
}

fn offered(text: &str, options: &[(&str, &str)]) -> Result<(), Invalid> {
    let is_offered = options.iter().any(|(value, _)| *value == text);
    is_offered.then_some(()).ok_or_else(|| Invalid("must be one of the options".into()))
}

fn new_key(who: &SignedIn, status: StatusCode, form: Form, opened: Opened) -> Response {
    let site = Site::new(who, "Create an API key", "keys");
    page(status, &New { site, form, opened })
}

fn rotation(who: &SignedIn, status: StatusCode, key: Row, opened: Opened) -> Response {
    let site = Site::new(who, "Rotate an API key", "keys");
    page(status, &Rotate { site, key, opened })
}

fn made(who: &SignedIn, key: &ApiKey, prefer: Option<String>, before: Option<String>) -> Response {
    let site = Site::new(who, "Your new API key", "keys");
    let url = format!("{}{}?limit=5", who.addresses.base_url.as_str(), Operation::ListPets.api_path());
    page(StatusCode::OK, &Made { site, key: key.expose(), request: SampleRequest::get(url), prefer, before })
}
