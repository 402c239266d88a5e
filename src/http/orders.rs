//! The store area, provisional: `listOrders`, `placeOrder`, `approveOrder`, `deliverOrder`, `cancelOrder`.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;

use super::auth::Caller;
use super::error::{ApiError, Code};
use super::idempotency::{self, Idempotency};
use super::input::{self, JsonBody, Query};
use super::json::{Fields, Response};
use super::openapi::schema;
use super::pages::{self, Items, List, Page};
use super::state::Api;
use crate::domain::order::{NotPlaced, NotTaken};
use crate::domain::{AccountId, Answer, NewOrder, Order, OrderQuery, OrderStatus, OrderStep};

/// List orders
///
/// Returns a page of the account's own orders, in order of their ids. While more follow, the header `Link` leads to the
/// next page.
#[utoipa::path(
    get, path = "/store/orders", operation_id = "listOrders", tag = "store",
    params(
        ("limit" = Option<i32>, Query, description = "Maximum number of orders returned.", minimum = 1, maximum = 100, example = 20),
        ("status" = Option<OrderStatus>, Query, description = "Keeps only orders with this status."),
        ("after" = Option<i64>, Query, description = "Returns the orders with greater ids, in order: pass the last id you received. Ids become visible in increasing order, so a client that keeps following `after` without `status` receives every order of the account exactly once."),
    ),
    responses((
        status = 200, description = "A page of orders.", body = schema::Orders,
        example = json!([{
            "id": 1, "petId": 31, "status": "placed",
            "createdAt": "2026-11-20T09:30:00.123Z", "updatedAt": "2026-11-20T09:30:00.123Z"
        }])
    ))
)]
pub async fn list(State(api): State<Api>, caller: Caller, query: Query) -> Result<Response, ApiError> {
    let query = pages::query(&query, OrderStatus::parse)?;
    pages::answer(&api, List::Orders(caller.account, query), read_page(&api, caller.account, &query)).await
}

async fn read_page(api: &Api, account: AccountId, query: &OrderQuery) -> Result<Page, ApiError> {
    let mut items = Items::new();
    let more = api.store.list_orders(account, query, &mut |order| order.write_json(items.add(order.id))).await?;
    let status = query.status.map(OrderStatus::as_str);
    Ok(Page::new(items, more, |last| pages::next(api, "/store/orders", query.limit, status, last)))
}

/// Place an order
///
/// Reserves an animal that is available: it is `pending` from then on. Both are durable when the answer is sent.
#[utoipa::path(
    post, path = "/store/orders", operation_id = "placeOrder", tag = "store",
    request_body(content = schema::NewOrder, example = json!({"petId": 31})),
    responses(
        (
            status = 201, description = "The order, with the id assigned to it.", body = schema::Order,
            example = json!({
                "id": 1, "petId": 31, "status": "placed",
                "createdAt": "2026-11-20T09:30:00.123Z", "updatedAt": "2026-11-20T09:30:00.123Z"
            })
        ),
        (status = 404, description = "The animal does not exist."),
        (status = 409, description = "The animal is not available."),
    )
)]
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
    match key.request(&api, &caller, "placeOrder", body.text())? {
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

/// Approve an order
///
/// For an order that is placed. Its animal stays `pending`. No body is needed; the fields of one that is sent are ignored.
#[utoipa::path(
    post, path = "/store/orders/{orderId}/approve", operation_id = "approveOrder", tag = "store",
    params(("orderId" = i64, Path, description = "Identifier of the order.", example = 1)),
    responses(
        (
            status = 200, description = "The order, which is `approved` now.", body = schema::Order,
            example = json!({
                "id": 1, "petId": 31, "status": "approved",
                "createdAt": "2026-11-20T09:30:00.123Z", "updatedAt": "2026-11-20T09:31:07.456Z"
            })
        ),
        (status = 404, description = "The account has no such order."),
        (status = 409, description = "The order is not placed."),
    )
)]
pub async fn approve(
    api: State<Api>,
    caller: Caller,
    id: OrderId,
    key: Idempotency,
    body: JsonBody,
) -> Result<Response, ApiError> {
    step(&api, caller, id, OrderStep::Approve, key, &body).await
}

/// Deliver an order
///
/// For an order that is approved. Its animal is `sold` from then on. No body is needed; the fields of one that is sent
/// are ignored.
#[utoipa::path(
    post, path = "/store/orders/{orderId}/deliver", operation_id = "deliverOrder", tag = "store",
    params(("orderId" = i64, Path, description = "Identifier of the order.", example = 1)),
    responses(
        (
            status = 200, description = "The order, which is `delivered` now.", body = schema::Order,
            example = json!({
                "id": 1, "petId": 31, "status": "delivered",
                "createdAt": "2026-11-20T09:30:00.123Z", "updatedAt": "2026-11-20T09:32:10.789Z"
            })
        ),
        (status = 404, description = "The account has no such order."),
        (status = 409, description = "The order is not approved."),
    )
)]
pub async fn deliver(
    api: State<Api>,
    caller: Caller,
    id: OrderId,
    key: Idempotency,
    body: JsonBody,
) -> Result<Response, ApiError> {
    step(&api, caller, id, OrderStep::Deliver, key, &body).await
}

/// Cancel an order
///
/// For an order that is placed or approved. Its animal is `available` again. No body is needed; the fields of one that is
/// sent are ignored.
#[utoipa::path(
    post, path = "/store/orders/{orderId}/cancel", operation_id = "cancelOrder", tag = "store",
    params(("orderId" = i64, Path, description = "Identifier of the order.", example = 1)),
    responses(
        (
            status = 200, description = "The order, which is `cancelled` now.", body = schema::Order,
            example = json!({
                "id": 1, "petId": 31, "status": "cancelled",
                "createdAt": "2026-11-20T09:30:00.123Z", "updatedAt": "2026-11-20T09:31:07.456Z"
            })
        ),
        (status = 404, description = "The account has no such order."),
        (status = 409, description = "The order is neither placed nor approved."),
    )
)]
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
        OrderStep::Approve => "approveOrder",
        OrderStep::Deliver => "deliverOrder",
        OrderStep::Cancel => "cancelOrder",
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
pub fn not_now(step: OrderStep, status: OrderStatus) -> ApiError {
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
pub fn no_such_order() -> ApiError {
    ApiError::new(Code::NotFound, "You have no order with this id.")
}

/// The id in the path, where it is one.
pub struct OrderId(pub Option<i64>);

impl<S: Sync> FromRequestParts<S> for OrderId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let segment = parts.uri.path().strip_prefix("/v1/store/orders/").and_then(|rest| rest.split('/').next());
        Ok(Self(segment.and_then(input::id)))
    }
}
