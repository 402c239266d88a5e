//! The animals.

use std::sync::Arc;

use axum::http::StatusCode;

use crate::api::addresses::Addresses;
use crate::api::cache::pages::{self, List};
use crate::api::call::Call;
use crate::api::documents::deprecation::REMOVED_AT;
use crate::api::error::{ApiError, Code};
use crate::api::input::fields::Fields;
use crate::api::input::pagination::{self, Items, Page};
use crate::api::input::{idempotency, query_and_body};
use crate::api::operations::Operation;
use crate::api::response::Response;
use crate::domain::{NewPet, Pet, PetName, PetQuery, PetStatus};
use crate::store::StoredResponse;

/// The path of an animal, before its id.
const PETS: &str = Operation::GetPet.api_prefix();

/// Handles `listPets`.
pub async fn list(call: &Call<'_>) -> Result<Response, ApiError> {
    let query = pagination::query(call.query(), PetStatus::parse)?;
    let api = call.api;
    pages::respond(&api.pages, &api.store, List::Pets(query), read_page(call, &query)).await
}

async fn read_page(call: &Call<'_>, query: &PetQuery) -> Result<Page, ApiError> {
    let mut items = Items::new();
    let mut add = |pet: Pet<'_>| pet.write_json(items.add(pet.id));
    let more = call.api.store.list_pets(query, &mut add).await?;
    let status = pagination::filter("status", query.status.map(PetStatus::as_str));
    Ok(items.into_page(more, |last| call.next_page(query.limit, &status, last)))
}

/// Handles `createPet`.
pub async fn create(call: &Call<'_>) -> Result<Response, ApiError> {
    let api = call.api;
    let pet = parse_new_pet(&call.body)?;
    let addresses = (api.clock.now() < REMOVED_AT).then(|| Arc::clone(&api.addresses));
    let respond = move |pet: &Pet<'_>| created(addresses.as_deref(), pet);
    let key = call.key(&respond)?;
    idempotency::respond(api.store.create_pet(pet, key).await?, respond)
}

/// The 201 response for `pet`. Includes `Location` until `getPet` is removed.
fn created(addresses: Option<&Addresses>, pet: &Pet<'_>) -> StoredResponse {
    // Not `format!`, which would take 2 % of the request's time.
    let location = addresses
        .map(|addresses| [addresses.base_url.as_reference(), PETS, itoa::Buffer::new().format(pet.id)].concat());
    StoredResponse { status: StatusCode::CREATED.as_u16(), location, body: pet.to_json() }
}

/// Handles `getPet`.
pub async fn get(call: &Call<'_>) -> Result<Response, ApiError> {
    query_and_body::parameters(call.query(), [])?;
    let pet = match call.id() {
        Some(id) => call.api.store.find_pet(id).await?,
        None => None,
    };
    let pet = pet.ok_or_else(|| ApiError::new(Code::NotFound, "There is no animal with this id."))?;
    Ok(call.api.deprecation.json(pet.to_json()))
}

pub fn parse_new_pet(text: &str) -> Result<NewPet, ApiError> {
    let fields = Fields::parse(text, NewPet::FIELDS)?;
    fields.require(&["name", "categoryId"])?;
    Ok(NewPet {
        name: fields.required_string("name", |text| PetName::parse(text.into_owned()))?,
        category_id: fields.required_integer("categoryId")?,
        status: fields.string("status", |text| PetStatus::parse(&text))?.unwrap_or(PetStatus::Available),
    })
}
