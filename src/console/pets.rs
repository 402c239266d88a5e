//! The animals pages: browse and add.

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use super::api_call::ApiCall;
use super::current_user::SignedIn;
use super::error::PageError;
use super::form::{Field, Form};
use super::layout::Site;
use super::pagination::{self, parse_integer};
use super::request_key::RequestKey;
use crate::domain::{Pet, PetName, PetStatus};
use crate::http::Operation;

#[derive(Template)]
#[template(path = "console/pets.html")]
struct List<'a> {
    site: Site<'a>,
    pets: Vec<Pet<'static>>,
    status: Option<PetStatus>,
    /// The last animal on the page. `None` if no more follow.
    next: Option<i64>,
    is_first: bool,
    api_call: ApiCall,
}

#[derive(Template)]
#[template(path = "console/pet-new.html")]
struct New<'a> {
    site: Site<'a>,
    name: Field,
    category_id: Field,
    status: Field,
    key: RequestKey,
    api_call: Option<ApiCall>,
}

pub async fn list(who: SignedIn, uri: Uri) -> Result<Response, PageError> {
    let query = pagination::query(&Form::of_query(&uri), PetStatus::parse)?;
    let mut pets = Vec::new();
    let more = who.api().store.list_pets(&query, &mut |pet| pets.push(pet.into_owned())).await?;
    let next = pets.last().filter(|_| more).map(|last| last.id);
    let mut first = None;
    if query.after.is_some() {
        who.api().store.list_pets(&pagination::first(&query), &mut |pet| first = Some(pet.id)).await?;
    }
    let is_first = query.after.is_none() || first == pets.first().map(|pet| pet.id);
    let api_call = ApiCall::list(&who, Operation::ListPets, &pagination::as_api(&query, PetStatus::as_str)).await;
    let site = Site::new(&who, "Animals", "animals");
    let list = List { site, pets, status: query.status, next, is_first, api_call };
    Ok(ApiCall::page(StatusCode::OK, &list, Some(&list.api_call)))
}

pub async fn new(who: SignedIn) -> Response {
    new_pet(&who, StatusCode::OK, empty_fields(), RequestKey::generate(), None)
}

pub async fn create(who: SignedIn, fields: Form) -> Result<Response, PageError> {
    let [mut name, mut category_id, mut status] = ["name", "categoryId", "status"].map(|name| fields.field(name));
    let key = RequestKey::of(&fields);
    let parsed = (
        name.parse("Enter a name.", "The name", PetName::parse),
        category_id.parse("Enter the id of a category.", "The category", |text| parse_integer(text.trim())),
        status.parse("Choose a status.", "The status", |text| PetStatus::parse(&text)),
    );
    let (Some(named), Some(category), Some(kept)) = parsed else {
        let fields = [name, category_id, status];
        return Ok(new_pet(&who, StatusCode::UNPROCESSABLE_ENTITY, fields, key, None));
    };
    let body = serde_json::json!({ "name": named.as_str(), "categoryId": category, "status": kept.as_str() });
    let api_call = ApiCall::post(&who, Operation::CreatePet, None, &key, &body.to_string()).await;
    // A successful form is cleared for the next animal. A failed one keeps its values.
    let fields = match api_call.status.is_success() {
        true => empty_fields(),
        false => [name, category_id, status],
    };
    Ok(new_pet(&who, api_call.status, fields, key.after(api_call.status), Some(api_call)))
}

fn empty_fields() -> [Field; 3] {
    [Field::default(), Field::default(), Field::new("available")]
}

fn new_pet(
    who: &SignedIn,
    status_code: StatusCode,
    fields: [Field; 3],
    key: RequestKey,
    api_call: Option<ApiCall>,
) -> Response {
    let [name, category_id, status] = fields;
    let site = Site::new(who, "Add an animal", "animals");
    let new = New { site, name, category_id, status, key, api_call };
    ApiCall::page(status_code, &new, new.api_call.as_ref())
}
