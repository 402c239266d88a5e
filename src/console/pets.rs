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
use super::simulation;
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
    /// The idempotency key of the forms that order an animal. Each form appends the animal's id.
    key: RequestKey,
    api_call: ApiCall,
}

#[derive(Template)]
#[template(path = "console/pet-new.html")]
struct New<'a> {
    site: Site<'a>,
    form: PetForm,
    key: RequestKey,
    api_call: Option<ApiCall>,
}

/// The fields of an animal.
struct PetForm {
    name: Field,
    category_id: Field,
    status: Field,
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
    let list = List { site, pets, status: query.status, next, is_first, key: RequestKey::generate(), api_call };
    Ok(ApiCall::page(StatusCode::OK, &list, Some(&list.api_call)))
}

pub async fn new(who: SignedIn) -> Response {
    let site = Site::new(&who, "Add an animal", "animals");
    let new = New { site, form: PetForm::empty(), key: RequestKey::generate(), api_call: None };
    ApiCall::page(StatusCode::OK, &new, None)
}

pub async fn create(who: SignedIn, fields: Form) -> Result<Response, PageError> {
    let site = Site::new(&who, "Add an animal", "animals");
    let (mut form, key) = (PetForm::of(&fields), RequestKey::of(&fields));
    let Some(body) = form.parse() else {
        let new = New { site, form, key, api_call: None };
        return Ok(ApiCall::page(StatusCode::UNPROCESSABLE_ENTITY, &new, None));
    };
    let preference = simulation::chosen(&fields);
    let api_call =
        ApiCall::post_preferring(&who, Operation::CreatePet, None, &key, &body.to_string(), preference).await;
    let status = api_call.status;
    // A successful form is cleared for the next animal. A failed one keeps its values.
    let form = if status.is_success() { PetForm::empty() } else { form };
    let new = New { site, form, key: key.after(status), api_call: Some(api_call) };
    Ok(ApiCall::page(status, &new, new.api_call.as_ref()))
}

impl PetForm {
    fn empty() -> Self {
        Self { name: Field::default(), category_id: Field::default(), status: Field::new("available") }
    }

    fn of(fields: &Form) -> Self {
        Self { name: fields.field("name"), category_id: fields.field("categoryId"), status: fields.field("status") }
    }

    /// Returns the body of the API request. `None` if a field has an error.
    fn parse(&mut self) -> Option<serde_json::Value> {
        let name = self.name.parse("Enter a name.", "The name", PetName::parse);
        let category = |text: String| parse_integer(text.trim());
        let category_id = self.category_id.parse("Enter the id of a category.", "The category", category);
        let status = self.status.parse("Choose a status.", "The status", |text| PetStatus::parse(&text));
        Some(serde_json::json!({ "name": name?.as_str(), "categoryId": category_id?, "status": status?.as_str() }))
    }
}
