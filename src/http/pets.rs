//! The animals: `listPets`, `createPet`, `getPet`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use super::auth::Caller;
use super::deprecation::{NotRemoved, REMOVED_AT};
use super::error::{ApiError, Code};
use super::idempotency::{self, Idempotency};
use super::input::{self, JsonBody, Query};
use super::json::{self, Fields, Response};
use super::operations::Operation;
use super::page_cache::{self, List};
use super::pagination::{self, Items, Page};
use super::state::Api;
use crate::config::Addresses;
use crate::domain::{NewPet, Pet, PetName, PetQuery, PetStatus};
use crate::store::{StoredResponse, WriteKey};

/// Handles `listPets`.
pub async fn list(State(api): State<Api>, _: Caller, query: Query) -> Result<Response, ApiError> {
    let query = pagination::query(&query, PetStatus::parse)?;
    page_cache::respond(&api, List::Pets(query), read_page(&api, &query)).await
}

async fn read_page(api: &Api, query: &PetQuery) -> Result<Page, ApiError> {
    let mut items = Items::new();
    let more = api.store.list_pets(query, &mut |pet| pet.write_json(items.add(pet.id))).await?;
    let status = query.status.map(PetStatus::as_str);
    Ok(Page::new(items, more, |last| pagination::next(api, Operation::ListPets, query.limit, status, last)))
}

/// Handles `createPet`.
pub async fn create(
    State(api): State<Api>,
    caller: Caller,
    key: Idempotency,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let pet = parse_new_pet(body.text())?;
    let request = key.request(&api, &caller, Operation::CreatePet, body.text())?;
    let addresses = (api.clock.now() < REMOVED_AT).then(|| Arc::clone(&api.addresses));
    let respond = move |pet: &Pet| created(addresses.as_deref(), pet);
    let key = request.map(|request| WriteKey::new(request, respond.clone()));
    idempotency::respond(api.store.create_pet(pet, key).await?, respond)
}

/// The 201 response for `pet`. Includes `Location` until `getPet` is removed.
fn created(addresses: Option<&Addresses>, pet: &Pet) -> StoredResponse {
    // Not `format!`, which would take 2 % of the request's time.
    let location = addresses
        .map(|addresses| [addresses.base_url.as_reference(), "/pets/", itoa::Buffer::new().format(pet.id)].concat());
    StoredResponse { status: StatusCode::CREATED.as_u16(), location, body: pet.to_json() }
}

/// Handles `getPet`.
pub async fn get(
    _: NotRemoved,
    State(api): State<Api>,
    _: Caller,
    query: Query,
    id: Option<i64>,
) -> Result<Response, ApiError> {
    query.parameters([])?;
    let pet = match id {
        Some(id) => api.store.find_pet(id).await?,
        None => None,
    };
    let pet: Pet = pet.ok_or_else(|| ApiError::new(Code::NotFound, "There is no animal with this id."))?;
    Ok(json::answer(StatusCode::OK, pet.to_json()))
}

/// Reads what is asked of a list from the query of its address.
pub fn parse_pet_query(query: &str) -> Result<PetQuery, ApiError> {
    pagination::of_parameters(input::parameters(Some(query), pagination::PARAMETERS)?, PetStatus::parse)
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
