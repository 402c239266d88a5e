//! The animals pages: browse and add.

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use crate::api::Operation;
use crate::console::form::{Form, Links, Place, RequestKey, newest_first, pagination, parse_integer};
use crate::console::session::SignedIn;
use crate::console::shown::{ApiCall, Unsent};
use crate::console::{PageError, Site};
use crate::domain::{PageLimit, Pet, PetName, PetQuery, PetStatus};

#[derive(Template)]
#[template(path = "console/pets.html")]
struct List<'a> {
    site: Site<'a>,
    pets: Vec<Pet<'static>>,
    status: Option<PetStatus>,
    links: Links<i64>,
    /// The idempotency key of the form that orders an animal, without the animal's id.
    key: RequestKey,
    /// The request of the list.
    listed: Option<ApiCall>,
}

impl List<'_> {
    /// True if an animal of the page can be ordered.
    fn has_available(&self) -> bool {
        self.pets.iter().any(|pet| pet.status == PetStatus::Available)
    }
}

#[derive(Template)]
#[template(path = "console/pet-new.html")]
struct New<'a> {
    site: Site<'a>,
    form: Form,
    key: RequestKey,
    sent: Option<ApiCall>,
    unsent: Unsent,
}

impl New<'_> {
    /// Returns the outcome of the form that sent this request.
    fn outcome(&self, sent: &ApiCall) -> String {
        sent.outcome(&format!("Animal {} was added.", sent.body()["id"]), "The animal was not added.")
    }
}

pub async fn list(who: SignedIn, uri: Uri) -> Result<Response, PageError> {
    let parameters = Form::of_query(&uri);
    let status = pagination::filter(&parameters, "status", PetStatus::parse)?;
    let place = Place::of_numbered(&parameters)?;
    let store = &who.api().store;
    let read = |direction, after, limit| async move {
        let mut pets = Vec::new();
        let query = PetQuery { limit, status, after, direction };
        let more = store.list_pets(&query, &mut |pet| pets.push(pet.into_owned())).await?;
        Ok((pets, more))
    };
    let (pets, links) = newest_first(place, PageLimit::default(), |pet: &Pet<'static>| pet.id, read).await?;
    let query = pagination::as_api(&pets, &links, status.map(PetStatus::as_str), |id| id - 1);
    let listed = ApiCall::list(&who, Operation::ListPets, query).await;
    let site = Site::new(&who, "Animals", "animals");
    let list = List { site, pets, status, links, key: RequestKey::generate(), listed };
    Ok(ApiCall::page(StatusCode::OK, &list, list.listed.as_ref()))
}

pub async fn new(who: SignedIn) -> Response {
    show(&who, StatusCode::OK, empty_form(), RequestKey::generate(), None)
}

pub async fn create(who: SignedIn, mut form: Form) -> Result<Response, PageError> {
    let key = RequestKey::of(&form);
    let Some(body) = parse(&mut form) else {
        return Ok(show(&who, form.status(), form, key, None));
    };
    let api_call = ApiCall::post(&who, Operation::CreatePet, None, &key, body.to_string(), &form).await;
    let status = api_call.status;
    // A successful form is cleared for the next animal. A failed one keeps its values.
    let form = if status.is_success() { empty_form() } else { form };
    Ok(show(&who, status, form, key.after(status), Some(api_call)))
}

fn show(who: &SignedIn, status: StatusCode, form: Form, key: RequestKey, sent: Option<ApiCall>) -> Response {
    // As far as the form is filled in. The page's script shows the same.
    let (name, category) = (form.or_example("name", "Rex"), form.integer_or_example("categoryId", "1"));
    let body = serde_json::json!({ "name": name, "categoryId": category, "status": form.get("status") });
    let unsent = ApiCall::unsent(who, Operation::CreatePet, &key, &form, &["name", "categoryId", "status"], &body);
    let new = New { site: Site::new(who, "Add an animal", "animals"), form, key, sent, unsent };
    ApiCall::page(status, &new, new.sent.as_ref())
}

/// Returns the form for a new animal, with its status chosen.
fn empty_form() -> Form {
    Form::of(&[("status", "available")])
}

/// Returns the body of the API request. `None` if a field has an error.
fn parse(form: &mut Form) -> Option<serde_json::Value> {
    let name = form.parse("name", "Enter a name.", "The name", PetName::parse);
    let category = |text: String| parse_integer(text.trim());
    let category_id = form.parse("categoryId", "Enter the id of a category.", "The category", category);
    let status = form.parse("status", "Choose a status.", "The status", |text| PetStatus::parse(&text));
    Some(serde_json::json!({ "name": name?.as_str(), "categoryId": category_id?, "status": status?.as_str() }))
}
