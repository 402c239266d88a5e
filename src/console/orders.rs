//! The orders page: list the account's own, place them, change their status.

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use futures_util::future::try_join_all;

use super::api_call::ApiCall;
use super::current_user::{CurrentUser, SignedIn};
use super::error::PageError;
use super::form::{Field, Form};
use super::layout::Site;
use super::pagination::{self, parse_integer};
use super::path::Path;
use super::request_key::RequestKey;
use super::simulation;
use super::times::moment;
use crate::domain::{Order, OrderQuery, OrderStatus, Transition};
use crate::http::Operation;
use crate::http::input::integer;
use crate::store::{self, Store};

#[derive(Template)]
#[template(path = "console/orders.html")]
struct List<'a> {
    site: Site<'a>,
    pet_id: Field,
    /// The key of the form that places an order. Forms that change one append its id.
    key: RequestKey,
    orders: Vec<Row>,
    status: Option<OrderStatus>,
    /// The last order on the page. `None` if no more follow.
    next: Option<i64>,
    is_first: bool,
    /// The outcome of the submitted form. Without a form, `api_call` is that of the list.
    outcome: Option<String>,
    api_call: ApiCall,
}

/// An order as the page shows it.
struct Row {
    id: i64,
    pet_id: i64,
    pet_name: String,
    status: OrderStatus,
    placed: String,
    changed: String,
}

impl Row {
    async fn new(store: &Store, order: Order) -> store::Result<Self> {
        let Order { id, pet_id, status, created_at, updated_at } = order;
        let pet = store.find_pet(pet_id).await?;
        let pet_name = pet.map_or_else(String::new, |pet| pet.name.to_string());
        Ok(Self { id, pet_id, pet_name, status, placed: moment(created_at), changed: moment(updated_at) })
    }

    /// The steps that its status allows.
    fn steps(&self) -> impl Iterator<Item = Transition> {
        let status = self.status;
        Transition::ALL.into_iter().filter(move |step| step.apply(status).is_some())
    }
}

pub async fn list(who: SignedIn, uri: Uri) -> Result<Response, PageError> {
    let parameters = Form::of_query(&uri);
    let query = pagination::query(&parameters, OrderStatus::parse)?;
    // Links from an animal fill in its id.
    show(&who, StatusCode::OK, query, parameters.field("petId"), RequestKey::generate(), None).await
}

pub async fn place(who: SignedIn, fields: Form) -> Result<Response, PageError> {
    let (mut pet_id, key) = (fields.field("petId"), RequestKey::of(&fields));
    let Some(pet) = pet_id.parse("Enter the id of an animal.", "The animal", |text| parse_integer(text.trim())) else {
        return show(&who, StatusCode::UNPROCESSABLE_ENTITY, OrderQuery::default(), pet_id, key, None).await;
    };
    let body = serde_json::json!({ "petId": pet }).to_string();
    let api_call =
        ApiCall::post_preferring(&who, Operation::PlaceOrder, None, &key, &body, simulation::chosen(&fields)).await;
    let pet_id = if api_call.status.is_success() { Field::default() } else { pet_id };
    done(&who, pet_id, key, api_call).await
}

/// Redirects to the orders, because the address of a step stays in the browser's address bar.
pub async fn show_step(user: CurrentUser) -> Response {
    user.redirect("orders")
}

pub async fn step(
    who: SignedIn,
    Path((id, step)): Path<(String, String)>,
    fields: Form,
) -> Result<Response, PageError> {
    let (Some(id), Some(step)) = (integer(&id), Transition::parse(&step)) else {
        return Err(PageError::not_found("There is no page at this address."));
    };
    let operation = match step {
        Transition::Approve => Operation::ApproveOrder,
        Transition::Deliver => Operation::DeliverOrder,
        Transition::Cancel => Operation::CancelOrder,
    };
    let key = RequestKey::of(&fields);
    let api_call = ApiCall::post(&who, operation, Some(id), &key, "").await;
    done(&who, Field::default(), RequestKey::generate(), api_call).await
}

/// Returns the list after a form, beginning with the order that the form was about.
async fn done(who: &SignedIn, pet_id: Field, key: RequestKey, api_call: ApiCall) -> Result<Response, PageError> {
    let answer: serde_json::Value = serde_json::from_str(&api_call.body).unwrap_or_default();
    let status = answer["status"].as_str().and_then(|status| OrderStatus::parse(status).ok());
    let (after, done) = match (answer["id"].as_i64(), status) {
        (Some(id), Some(status)) => {
            let (pet_id, pet) = (&answer["petId"], status.pet().as_str());
            (Some(id - 1), format!("Order {id} is now {}. Animal {pet_id} is {pet}.", status.as_str()))
        }
        _ => (None, String::new()),
    };
    let outcome = api_call.outcome(&done, "Nothing was changed.");
    let (status, query) = (api_call.status, OrderQuery { after, ..OrderQuery::default() });
    show(who, status, query, pet_id, key.after(api_call.status), Some((outcome, api_call))).await
}

async fn show(
    who: &SignedIn,
    status_code: StatusCode,
    query: OrderQuery,
    pet_id: Field,
    key: RequestKey,
    done: Option<(String, ApiCall)>,
) -> Result<Response, PageError> {
    let mut orders: Vec<Order> = Vec::new();
    let more = who.api().store.list_orders(who.session.account, &query, &mut |order| orders.push(order)).await?;
    // At once, so that PostgreSQL answers them together.
    let orders = try_join_all(orders.into_iter().map(|order| Row::new(&who.api().store, order))).await?;
    let next = orders.last().filter(|_| more).map(|last| last.id);
    let mut first = None;
    if query.after.is_some() {
        who.api()
            .store
            .list_orders(who.session.account, &pagination::first(&query), &mut |order| first = Some(order.id))
            .await?;
    }
    let is_first = query.after.is_none() || first == orders.first().map(|order| order.id);
    let (outcome, api_call) = match done {
        Some((outcome, api_call)) => (Some(outcome), api_call),
        None => {
            (None, ApiCall::list(who, Operation::ListOrders, &pagination::as_api(&query, OrderStatus::as_str)).await)
        }
    };
    let site = Site::new(who, "Orders", "orders");
    let list = List { site, pet_id, key, orders, status: query.status, next, is_first, outcome, api_call };
    Ok(ApiCall::page(status_code, &list, Some(&list.api_call)))
}
