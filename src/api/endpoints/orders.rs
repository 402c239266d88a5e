//! Orders, which are provisional.

use std::sync::Arc;

use axum::http::StatusCode;

use crate::api::addresses::Addresses;
use crate::api::cache::pages::{self, List};
use crate::api::call::Call;
use crate::api::caller;
use crate::api::client::client_address;
use crate::api::error::{ApiError, Code};
use crate::api::input::fields::Fields;
use crate::api::input::pagination::{self, Items, Page};
use crate::api::input::{idempotency, query_and_body};
use crate::api::operations::Operation;
use crate::api::response::{self, Response};
use crate::domain::order::{PlaceOrderError, TransitionError};
use crate::domain::{AccountId, Actor, NewOrder, Order, OrderQuery, OrderStatus, OrderTransition, Transition};
use crate::store::{Outcome, StoredResponse};

/// The path of an order, before its id.
const ORDERS: &str = Operation::GetOrder.api_prefix();

/// Handles `listOrders`.
pub async fn list(call: &Call<'_>) -> Result<Response, ApiError> {
    let (query, customer) = match call.customer() {
        Some(customer) => (pagination::query(call.query(), OrderStatus::parse)?, Some(customer)),
        None => {
            let [page @ .., account] =
                query_and_body::parameters(call.query(), ["limit", "status", "after", "accountId"])?;
            let customer = account.map(|text| pagination::number("accountId", &text)).transpose()?.map(AccountId);
            (pagination::query_of(page, OrderStatus::parse)?, customer)
        }
    };
    let (api, is_staff) = (call.api, call.customer().is_none());
    let page = read_page(call, customer, &query);
    pages::respond(&api.pages, &api.store, List::Orders { customer, is_staff, query }, page).await
}

async fn read_page(call: &Call<'_>, customer: Option<AccountId>, query: &OrderQuery) -> Result<Page, ApiError> {
    let mut items = Items::new();
    let mut add = |order: Order| order.write_json(items.add(order.id));
    let more = call.api.store.list_orders(customer, query, &mut add).await?;
    let status = pagination::filter("status", query.status.map(OrderStatus::as_str));
    let chosen = customer.filter(|_| call.customer().is_none());
    let filters = status + &pagination::filter("accountId", chosen.map(|customer| customer.0));
    Ok(items.into_page(more, |last| call.next_page(query.limit, &filters, last)))
}

/// Handles `placeOrder`.
pub async fn place(call: &Call<'_>) -> Result<Response, ApiError> {
    let fields = Fields::parse(&call.body, NewOrder::FIELDS)?;
    let pet_id = fields.required_integer("petId")?;
    let order = NewOrder { account: call.account, pet_id, now: call.api.clock.now() };
    let addresses = Arc::clone(&call.api.addresses);
    let respond = move |order: &Order| placed(&addresses, order);
    let key = call.key(&respond)?;
    idempotency::respond(call.api.store.place_order(order, key).await?, respond)
}

/// The 201 response for a placed order.
fn placed(addresses: &Addresses, order: &Order) -> StoredResponse {
    let location = [addresses.base_url.as_reference(), ORDERS, itoa::Buffer::new().format(order.id)].concat();
    StoredResponse { status: StatusCode::CREATED.as_u16(), location: Some(location), body: order.to_json() }
}

/// Handles `getOrder`.
pub async fn get(call: &Call<'_>) -> Result<Response, ApiError> {
    query_and_body::parameters(call.query(), [])?;
    let order = match call.id() {
        Some(id) => call.api.store.find_order(call.customer(), id).await?,
        None => None,
    };
    Ok(response::json(StatusCode::OK, order.ok_or_else(order_not_found)?.to_json()))
}

impl From<PlaceOrderError> for ApiError {
    fn from(error: PlaceOrderError) -> Self {
        match error {
            PlaceOrderError::NotAvailable => Self::new(Code::Conflict, "The animal is not available."),
            PlaceOrderError::PetNotFound => Self::new(Code::NotFound, "There is no animal with this id."),
        }
    }
}

/// Handles `approveOrder`, `deliverOrder` and `cancelOrder`. They need no body, but accept an object.
pub async fn change(call: &Call<'_>, transition: Transition) -> Result<Response, ApiError> {
    if !call.body.is_empty() {
        Fields::parse(&call.body, [])?;
    }
    let key = call.key(&changed)?;
    let order = call.id().ok_or_else(order_not_found)?;
    let (account, role, actor) = (call.account, call.caller.role(), Box::new(actor(call).await?));
    let change = OrderTransition { account, role, order, transition, actor };
    let outcome = call.api.store.transition_order(change, key).await?;
    // An account that was staff may have changed an order that it may not see any more.
    if let (Outcome::Replayed(_), Some(_)) = (&outcome, call.customer()) {
        call.api.store.find_order(call.customer(), order).await?.ok_or_else(order_not_found)?;
    }
    idempotency::respond(outcome, changed)
}

/// Returns the caller for the audit.
async fn actor(call: &Call<'_>) -> Result<Actor, ApiError> {
    let (api, peer) = (call.api, call.caller.peer);
    // Without an account, the key is not valid any more.
    let email = api.store.find_email(call.account).await?.ok_or_else(caller::invalid)?;
    let client = client_address(peer.address, &call.head.headers, &api.trusted_proxies);
    Ok(peer.actor(email, client, api.clock.now()))
}

/// The 200 response for an order after its transition.
fn changed(order: &Order) -> StoredResponse {
    StoredResponse::json(StatusCode::OK.as_u16(), order.to_json())
}

impl From<TransitionError> for ApiError {
    fn from(error: TransitionError) -> Self {
        match error {
            TransitionError::WrongStatus { transition, status } => {
                let (from, to) = transition.rule();
                let from: Vec<_> = from.iter().map(|status| format!("`{}`", status.as_str())).collect();
                let (status, from, to) = (status.as_str(), from.join(" or "), to.as_str());
                let message = format!("The order is `{status}`; only one that is {from} can become `{to}`.");
                Self::new(Code::Conflict, message)
            }
            TransitionError::NotFound => order_not_found(),
        }
    }
}

/// The error for an unknown order. Other accounts' orders are reported as not found.
fn order_not_found() -> ApiError {
    ApiError::new(Code::NotFound, "You have no order with this id.")
}
