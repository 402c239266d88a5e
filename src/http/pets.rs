//! The animals: `listPets`, `createPet`, `getPet`.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, State};
use axum::http::header::{LINK, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use percent_encoding::percent_decode_str;

use super::auth::Caller;
use super::deprecation::{NotRemoved, REMOVED_AT};
use super::error::{ApiError, Code};
use super::input::{JsonBody, Query, integer};
use super::json::{self, Fields, Response};
use super::openapi::schema;
use super::pages::Page;
use super::state::Api;
use crate::domain::{Invalid, NewPet, PageLimit, Pet, PetName, PetQuery, PetStatus};

/// List animals
///
/// Returns a page of animals in order of their ids. While more follow, the header `Link` leads to the next page.
#[utoipa::path(
    get, path = "/pets", operation_id = "listPets", tag = "pets",
    params(
        ("limit" = Option<i32>, Query, description = "Maximum number of animals returned.", minimum = 1, maximum = 100, example = 20),
        ("status" = Option<PetStatus>, Query, description = "Keeps only animals with this status."),
        ("after" = Option<i64>, Query, description = "Provisional: returns what follows this id: where the page before ended."),
    ),
    responses((
        status = 200, description = "A page of animals.", body = schema::Pets,
        example = json!([{"id": 1, "name": "Rex", "categoryId": 3, "status": "available"}])
    ))
)]
pub async fn list(State(api): State<Api>, _: Caller, query: Query) -> Result<Response, ApiError> {
    let query = pet_query(&query)?;
    // Taken before the animals are read: a commit in between makes the page old at once, never wrongly new.
    let version = api.store.version();
    let kept = version.and_then(|version| api.pages.get(&query, version));
    let page = match kept {
        Some(page) => page,
        None => {
            let page = read_page(&api, &query).await?;
            if let Some(version) = version {
                api.pages.keep(query, version, &page);
            }
            page
        }
    };
    let mut response = json::answer(StatusCode::OK, page.body);
    if let Some(next) = page.next {
        response.headers_mut().insert(LINK, next);
    }
    Ok(response)
}

async fn read_page(api: &Api, query: &PetQuery) -> Result<Page, ApiError> {
    let mut body = Vec::with_capacity(64 * 32);
    let mut last = None;
    body.push(b'[');
    let more = api
        .store
        .list_pets(query, &mut |pet| {
            if last.replace(pet.id).is_some() {
                body.push(b',');
            }
            pet.write_json(&mut body);
        })
        .await?;
    body.push(b']');
    let next = last
        .filter(|_| more)
        .map(|last| HeaderValue::try_from(next_page(api, query, last)).expect("an address has visible ASCII only"));
    Ok(Page { body: body.into(), next })
}

/// Add an animal
///
/// The animal is durable when the answer is sent. Unknown fields are ignored.
#[utoipa::path(
    post, path = "/pets", operation_id = "createPet", tag = "pets",
    request_body(content = schema::NewPet, example = json!({"name": "Rex", "categoryId": 3, "status": "available"})),
    responses((
        status = 201, description = "The animal, with the id assigned to it.", body = schema::Pet,
        example = json!({"id": 31, "name": "Rex", "categoryId": 3, "status": "available"})
    ))
)]
pub async fn create(State(api): State<Api>, _: Caller, body: JsonBody) -> Result<Response, ApiError> {
    let pet = api.store.create_pet(parse_new_pet(body.text())?).await?;
    let mut response = json::answer(StatusCode::CREATED, pet.to_json());
    if api.clock.now() < REMOVED_AT {
        // Put together without `format!`, which would cost a fiftieth of the request.
        let location = [api.addresses.base_url.as_str(), "/pets/", itoa::Buffer::new().format(pet.id)].concat();
        let location = HeaderValue::try_from(location).expect("an address has visible ASCII only");
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// Get one animal (deprecated, removed on 5 December 2030)
///
/// List animals with a `status` filter instead.
#[utoipa::path(
    get, path = "/pets/{petId}", operation_id = "getPet", tag = "pets",
    params(("petId" = i64, Path, description = "Identifier of the animal.", example = 31)),
    responses(
        (
            status = 200, description = "The animal.", body = schema::Pet,
            example = json!({"id": 31, "name": "Rex", "categoryId": 3, "status": "available"})
        ),
        (status = 404, description = "The animal does not exist."),
    )
)]
pub async fn get(
    _: NotRemoved,
    State(api): State<Api>,
    _: Caller,
    query: Query,
    PetId(id): PetId,
) -> Result<Response, ApiError> {
    query.parameters([])?;
    let pet = match id {
        Some(id) => api.store.find_pet(id).await?,
        None => None,
    };
    let pet: Pet = pet.ok_or_else(|| ApiError::new(Code::NotFound, "There is no animal with this id."))?;
    Ok(json::answer(StatusCode::OK, pet.to_json()))
}

/// The id in the path, where it is one.
pub struct PetId(Option<i64>);

impl<S: Sync> FromRequestParts<S> for PetId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // A digit may come percent-encoded (RFC 3986, section 6.2.2.2), though hardly ever does.
        let decoded = |segment| integer(&percent_decode_str(segment).decode_utf8().ok()?);
        Ok(Self(id_segment(parts.uri.path()).and_then(|segment| integer(segment).or_else(|| decoded(segment)))))
    }
}

/// What stands for `{petId}` in a path of `/v1/pets/{petId}`.
pub fn id_segment(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/pets/").filter(|id| !id.is_empty() && !id.contains('/'))
}

fn pet_query(query: &Query) -> Result<PetQuery, ApiError> {
    let [limit, status, after] = query.parameters(["limit", "status", "after"])?;
    let number = |name: &str, text: &str| {
        let invalid = || Invalid("must be an integer: digits with an optional minus sign, within 64 bits".into());
        integer(text).ok_or_else(|| ApiError::invalid_value(name, &invalid()))
    };
    let refused = |name: &'static str| move |invalid| ApiError::invalid_value(name, &invalid);
    Ok(PetQuery {
        limit: match limit {
            Some(text) => PageLimit::new(number("limit", &text)?).map_err(refused("limit"))?,
            None => PageLimit::default(),
        },
        status: status.map(|text| PetStatus::parse(&text).map_err(refused("status"))).transpose()?,
        after: after.map(|text| number("after", &text)).transpose()?,
    })
}

/// Reads an animal to add from its JSON text.
pub fn parse_new_pet(text: &str) -> Result<NewPet, ApiError> {
    let fields = Fields::parse(text, ["name", "categoryId", "status"])?;
    fields.require(&["name", "categoryId"])?;
    Ok(NewPet {
        name: fields.required_string("name", |text| PetName::parse(text.into_owned()))?,
        category_id: fields.required_integer("categoryId")?,
        status: fields.string("status", |text| PetStatus::parse(&text))?.unwrap_or(PetStatus::Available),
    })
}

/// A link to what follows `last` (RFC 8288).
fn next_page(api: &Api, query: &PetQuery, last: i64) -> String {
    let pets = api.addresses.base_url.path("/pets");
    let status = query.status.map_or(String::new(), |status| format!("&status={}", status.as_str()));
    format!(r#"<{pets}?limit={}{status}&after={last}>; rel="next""#, query.limit.get())
}
