//! Calls the handlers of operations.

use axum::http::request::Parts;

use super::call::Call;
use super::caller::Caller;
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
        _ => unreachable!("the operation needs an account"),
    }
}

/// Executes an operation for an admitted caller. The error is the response of a failed check, or of an operation that was
/// rejected.
///
/// The request is passed by reference, because every by-value argument is copied into each future on the call path. The
/// futures of rare operations are boxed to keep this one small.
pub async fn execute(
    operation: Operation,
    api: &Api,
    head: &Parts,
    body: &mut impl RequestBody,
    caller: &Caller<'_>,
) -> Result<Response, ApiError> {
    let mut read = async || Call::read(operation, api, head, body, caller).await;
    match operation {
        ListPets => pets::list(&read().await?).await,
        CreatePet => pets::create(&read().await?).await,
        GetPet => pets::get(&read().await?).await,
        ListOrders => orders::list(&read().await?).await,
        PlaceOrder => orders::place(&read().await?).await,
        GetOrder => Box::pin(orders::get(&read().await?)).await,
        ApproveOrder => Box::pin(orders::change(&read().await?, caller.peer, Transition::Approve)).await,
        DeliverOrder => Box::pin(orders::change(&read().await?, caller.peer, Transition::Deliver)).await,
        CancelOrder => Box::pin(orders::change(&read().await?, caller.peer, Transition::Cancel)).await,
        SendMessage => messages::send(&read().await?).await,
        ListMessages => Box::pin(messages::list(&read().await?)).await,
        GetLiveness | GetReadiness | GetMetrics | GetDocument | GetDocument30 | GetSecurityTxt | ListRequests
        | DeleteRequests => unreachable!("the operation needs no account"),
    }
}
