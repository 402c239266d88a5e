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
use crate::domain::order::{NotPlaced, NotTaken};
use crate::domain::{AccountId, Answer, NewOrder, Order, OrderQuery, OrderStatus, OrderStep};

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
    let placed = |order: &Order| Answer::json(StatusCode::CREATED.as_u16(), order.to_json());
    match key.request(&api, &caller, Operation::PlaceOrder, body.text())? {
        None => {
            let order = api.store.place_order(order).await?.map_err(not_placed)?;
            Ok(idempotency::response(placed(&order)))
        }
        Some(request) => {
            idempotency::respond(api.store.place_order_once(request, order, Box::new(placed)).await?, not_placed)
        }
    }
}

fn not_placed(refused: NotPlaced) -> ApiError {
    match refused {
        NotPlaced::NotAvailable => ApiError::new(Code::Conflict, "The animal is not available."),
        NotPlaced::NoSuchPet => ApiError::new(Code::NotFound, "There is no animal with this id."),
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
    step(&api, caller, id, OrderStep::Approve, key, &body).await
}

/// Handles `deliverOrder`.
pub async fn deliver(
    api: State<Api>,
    caller: Caller,
    id: OrderId,
    key: Idempotency,
    body: JsonBody,
) -> Result<Response, ApiError> {
    step(&api, caller, id, OrderStep::Deliver, key, &body).await
}

/// Handles `cancelOrder`.
pub async fn cancel(
    api: State<Api>,
    caller: Caller,
    id: OrderId,
    key: Idempotency,
    body: JsonBody,
) -> Result<Response, ApiError> {
    step(&api, caller, id, OrderStep::Cancel, key, &body).await
}

async fn step(
    api: &Api,
    caller: Caller,
    OrderId(id): OrderId,
    step: OrderStep,
    key: Idempotency,
    body: &JsonBody,
) -> Result<Response, ApiError> {
    if !body.text().is_empty() {
        Fields::parse(body.text(), [])?;
    }
    let operation = match step {
        OrderStep::Approve => Operation::ApproveOrder,
        OrderStep::Deliver => Operation::DeliverOrder,
        OrderStep::Cancel => Operation::CancelOrder,
    };
    let request = key.request(api, &caller, operation, body.text())?;
    let id = id.ok_or_else(no_such_order)?;
    let done = |order: &Order| Answer::json(StatusCode::OK.as_u16(), order.to_json());
    match request {
        None => {
            let stepped = api.store.step_order(caller.account, id, step, api.clock.now()).await?;
            let order = stepped.map_err(|refused| not_taken(step, refused))?;
            Ok(idempotency::response(done(&order)))
        }
        Some(request) => {
            let outcome = api.store.step_order_once(request, id, step, api.clock.now(), Box::new(done)).await?;
            idempotency::respond(outcome, |refused| not_taken(step, refused))
        }
    }
}

fn not_taken(step: OrderStep, refused: NotTaken) -> ApiError {
    match refused {
        NotTaken::NotNow(status) => not_now(step, status),
        NotTaken::NoSuchOrder => no_such_order(),
    }
}

/// Why a step is not for an order with this status.
fn not_now(step: OrderStep, status: OrderStatus) -> ApiError {
    let (from, to) = step.rule();
    let from: Vec<_> = from.iter().map(|status| format!("`{}`", status.as_str())).collect();
    let message = format!(
        "The order is `{}`; only one that is {} can become `{}`.",
        status.as_str(),
        from.join(" or "),
        to.as_str()
    );
    ApiError::new(Code::Conflict, message)
}

/// Another account's order is none, too.
fn no_such_order() -> ApiError {
    ApiError::new(Code::NotFound, "You have no order with this id.")
}

/// The id in a request's path. `None` if it is not an int64.
pub struct OrderId(pub Option<i64>);
