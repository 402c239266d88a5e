//! The store area, provisional: `listOrders`, `placeOrder`, `approveOrder`, `deliverOrder`, `cancelOrder`.

use axum::extract::State;
use axum::http::StatusCode;

use super::auth::Caller;
use super::error::{ApiError, Code};
use super::idempotency::{self, Idempotency};
use super::input::{JsonBody, Query};
use super::json::{Fields, Response};
use super::operations::Operation;
use super::page_cache::{self, List};
use super::pagination::{self, Items, Page};
use super::state::Api;
use crate::domain::order::{PlaceOrderError, TransitionError};
use crate::domain::{AccountId, NewOrder, Order, OrderQuery, OrderStatus, OrderTransition, Transition};
use crate::store::{StoredResponse, WriteKey};

/// Handles `listOrders`.
pub async fn list(State(api): State<Api>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let query = pagination::query(&query, OrderStatus::parse)?;
    page_cache::respond(&api, List::Orders(caller.account, query), read_page(&api, caller.account, &query)).await
}

async fn read_page(api: &Api, account: AccountId, query: &OrderQuery) -> Result<Page, ApiError> {
    let mut items = Items::new();
    let more = api.store.list_orders(account, query, &mut |order| order.write_json(items.add(order.id))).await?;
    let status = query.status.map(OrderStatus::as_str);
    Ok(Page::new(items, more, |last| pagination::next(api, Operation::ListOrders, query.limit, status, last)))
}

/// Handles `placeOrder`.
pub async fn place(
    State(api): State<Api>,
    caller: Caller,
    key: Idempotency,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(body.text(), ["petId"])?;
    let pet_id = fields.required_integer("petId")?;
    let order = NewOrder { account: caller.account, pet_id, now: api.clock.now() };
    let request = key.request(&api, &caller, Operation::PlaceOrder, body.text())?;
    let key = request.map(|request| WriteKey::new(request, placed));
    idempotency::respond(api.store.place_order(order, key).await?, placed)
}

/// The 201 response for a placed order.
fn placed(order: &Order) -> StoredResponse {
    StoredResponse::json(StatusCode::CREATED.as_u16(), order.to_json())
}

impl From<PlaceOrderError> for ApiError {
    fn from(error: PlaceOrderError) -> Self {
        match error {
            PlaceOrderError::NotAvailable => Self::new(Code::Conflict, "The animal is not available."),
            PlaceOrderError::PetNotFound => Self::new(Code::NotFound, "There is no animal with this id."),
        }
    }
}

/// Handles `approveOrder`.
pub async fn approve(
    api: State<Api>,
    caller: Caller,
    id: OrderId,
    key: Idempotency,
    body: JsonBody,
) -> Result<Response, ApiError> {
    change_status(&api, caller, id, Transition::Approve, key, &body).await
}

/// Handles `deliverOrder`.
pub async fn deliver(
    api: State<Api>,
    caller: Caller,
    id: OrderId,
    key: Idempotency,
    body: JsonBody,
) -> Result<Response, ApiError> {
    change_status(&api, caller, id, Transition::Deliver, key, &body).await
}

/// Handles `cancelOrder`.
pub async fn cancel(
    api: State<Api>,
    caller: Caller,
    id: OrderId,
    key: Idempotency,
    body: JsonBody,
) -> Result<Response, ApiError> {
    change_status(&api, caller, id, Transition::Cancel, key, &body).await
}

async fn change_status(
    api: &Api,
    caller: Caller,
    OrderId(id): OrderId,
    transition: Transition,
    key: Idempotency,
    body: &JsonBody,
) -> Result<Response, ApiError> {
    if !body.text().is_empty() {
        Fields::parse(body.text(), [])?;
    }
    let operation = match transition {
        Transition::Approve => Operation::ApproveOrder,
        Transition::Deliver => Operation::DeliverOrder,
        Transition::Cancel => Operation::CancelOrder,
    };
    let request = key.request(api, &caller, operation, body.text())?;
    let order = id.ok_or_else(order_not_found)?;
    let key = request.map(|request| WriteKey::new(request, changed));
    let transition = OrderTransition { account: caller.account, order, transition, now: api.clock.now() };
    idempotency::respond(api.store.transition_order(transition, key).await?, changed)
}

/// The 200 response for an order after its transition.
fn changed(order: &Order) -> StoredResponse {
    StoredResponse::json(StatusCode::OK.as_u16(), order.to_json())
}

impl From<TransitionError> for ApiError {
    fn from(error: TransitionError) -> Self {
        match error {
            TransitionError::WrongStatus { transition, status } => wrong_status(transition, status),
            TransitionError::NotFound => order_not_found(),
        }
    }
}

/// The error for a transition that does not start from the order's status.
fn wrong_status(transition: Transition, status: OrderStatus) -> ApiError {
    let (from, to) = transition.rule();
    let from: Vec<_> = from.iter().map(|status| format!("`{}`", status.as_str())).collect();
    let message = format!(
        "The order is `{}`; only one that is {} can become `{}`.",
        status.as_str(),
        from.join(" or "),
        to.as_str()
    );
    ApiError::new(Code::Conflict, message)
}

/// The error for an unknown order. Other accounts' orders are reported as not found.
fn order_not_found() -> ApiError {
    ApiError::new(Code::NotFound, "You have no order with this id.")
}

/// The id in a request's path. `None` if it is not an int64.
pub struct OrderId(pub Option<i64>);
