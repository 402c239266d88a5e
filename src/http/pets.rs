//! The animals: `listPets`, `createPet`, `getPet`.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;

use super::auth::Caller;
use super::deprecation::{NotRemoved, REMOVED_AT};
use super::error::{ApiError, Code};
use super::idempotency::{self, Idempotency};
use super::input::{self, JsonBody, Query};
use super::json::{self, Fields, Response};
use super::openapi::schema;
use super::pages::{self, Items, List, Page};
use super::state::Api;
use crate::config::BaseUrl;
use crate::domain::{Answer, NewPet, Pet, PetName, PetQuery, PetStatus};

/// List animals
///
/// Returns a page of animals in order of their ids. While more follow, the header `Link` leads to the next page.
#[utoipa::path(
    get, path = "/pets", operation_id = "listPets", tag = "pets",
    params(
        ("limit" = Option<i32>, Query, description = "Maximum number of animals returned.", minimum = 1, maximum = 100, example = 20),
        ("status" = Option<PetStatus>, Query, description = "Keeps only animals with this status."),
        ("after" = Option<i64>, Query, description = "Provisional: returns the animals with greater ids, in order: pass the last id you received. Ids become visible in increasing order, so a client that keeps following `after` without `status` receives every animal exactly once."),
    ),
    responses((
        status = 200, description = "A page of animals.", body = schema::Pets,
        example = json!([{"id": 1, "name": "Rex", "categoryId": 3, "status": "available"}])
    ))
)]
pub async fn list(State(api): State<Api>, _: Caller, query: Query) -> Result<Response, ApiError> {
    let query = pages::query(&query, PetStatus::parse)?;
    pages::answer(&api, List::Pets(query), read_page(&api, &query)).await
}

async fn read_page(api: &Api, query: &PetQuery) -> Result<Page, ApiError> {
    let mut items = Items::new();
    let more = api.store.list_pets(query, &mut |pet| pet.write_json(items.add(pet.id))).await?;
    let status = query.status.map(PetStatus::as_str);
    Ok(Page::new(items, more, |last| pages::next(api, "/pets", query.limit, status, last)))
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
pub async fn create(
    State(api): State<Api>,
    caller: Caller,
    key: Idempotency,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let pet = parse_new_pet(body.text())?;
    let base_url = (api.clock.now() < REMOVED_AT).then_some(&api.addresses.base_url);
    match key.request(&api, &caller, "createPet", body.text())? {
        None => Ok(idempotency::response(created(base_url, &api.store.create_pet(pet).await?))),
        Some(request) => {
            let base_url = base_url.cloned();
            let answer = Box::new(move |pet: &Pet| created(base_url.as_ref(), pet));
            idempotency::respond(api.store.create_pet_once(request, pet, answer).await?, |never| match never {})
        }
    }
}

/// The answer to who has added `pet`, with its address at `base_url` while it has one.
fn created(base_url: Option<&BaseUrl>, pet: &Pet) -> Answer {
    // Put together without `format!`, which would cost a fiftieth of the request.
    let location = base_url.map(|url| [url.as_reference(), "/pets/", itoa::Buffer::new().format(pet.id)].concat());
    Answer { status: StatusCode::CREATED.as_u16(), location, body: pet.to_json() }
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
        Ok(Self(id_segment(parts.uri.path()).and_then(input::id)))
    }
}

/// What stands for `{petId}` in a path of `/v1/pets/{petId}`.
pub fn id_segment(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/pets/").filter(|id| !id.is_empty() && !id.contains('/'))
}

/// Reads what is asked of a list from the query of its address.
pub fn parse_pet_query(query: &str) -> Result<PetQuery, ApiError> {
    pages::of_parameters(input::parameters(Some(query), pages::PARAMETERS)?, PetStatus::parse)
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
