//! The animals: `listPets`, `createPet`, `getPet`.

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
use crate::config::BaseUrl;
use crate::domain::{Answer, NewPet, Pet, PetName, PetQuery, PetStatus};

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
    let base_url = (api.clock.now() < REMOVED_AT).then_some(&api.addresses.base_url);
    match key.request(&api, &caller, Operation::CreatePet, body.text())? {
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
