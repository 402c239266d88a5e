//! Calls the handlers of operations.

use axum::http::request::Parts;

use super::call::Call;
use super::documents::openapi::Version;
use super::endpoints::{document, health, journal, messages, metrics, orders, pets, well_known};
use super::error::ApiError;
use super::input::query_and_body::RequestBody;
use super::operations::Operation::{self, *};
use super::prefer::delivery::Called;
use super::response::Response;
use super::state::Api;
use crate::domain::Transition;

/// Executes an operation that needs no account.
pub async fn execute_for_anyone(operation: Operation, api: &Api, head: &Parts) -> Result<Called, ApiError> {
    let headers = &head.headers;
    match operation {
        GetLiveness => Ok(health::live().into()),
        GetReadiness => health::ready(api).await.map(Called::from),
        GetMetrics => Ok(metrics::serve(api, headers).await.into()),
        GetSecurityTxt => well_known::security_txt(api, headers).map(Called::from),
        ListRequests => journal::list(api, head).await.map(Called::from),
        DeleteRequests => journal::delete(api, head).await.map(Called::from),
        GetDocument => document::serve(api, Version::V3_1, headers),
        GetDocument30 => document::serve(api, Version::V3_0, headers),
        ListPets | CreatePet | GetPet | ListOrders | PlaceOrder | GetOrder | ApproveOrder | DeliverOrder
        | CancelOrder | SendMessage | ListMessages => unreachable!("the operation needs an account"),
    }
}

/// Reads the body of a call, and executes it. The error is the response of a failed check, or of an operation that was
/// rejected.
///
/// The call is passed by reference, because every by-value argument is copied into each future on the call path. The futures
/// of rare operations are boxed to keep this one small.
pub async fn execute(call: &mut Call<'_>, body: &mut impl RequestBody) -> Result<Response, ApiError> {
    call.read(body).await?;
    let call = &*call;
    match call.operation {
        ListPets => pets::list(call).await,
        CreatePet => pets::create(call).await,
        GetPet => pets::get(call).await,
        ListOrders => orders::list(call).await,
        PlaceOrder => orders::place(call).await,
        GetOrder => Box::pin(orders::get(call)).await,
        ApproveOrder => Box::pin(orders::change(call, Transition::Approve)).await,
        DeliverOrder => Box::pin(orders::change(call, Transition::Deliver)).await,
        CancelOrder => Box::pin(orders::change(call, Transition::Cancel)).await,
        SendMessage => messages::send(call).await,
        ListMessages => Box::pin(messages::list(call)).await,
        GetLiveness | GetReadiness | GetMetrics | GetDocument | GetDocument30 | GetSecurityTxt | ListRequests
        | DeleteRequests => unreachable!("the operation needs no account"),
    }
}
