//! The way of a call: the caller is admitted, then the operation is executed, or its failures are simulated.

use axum::http::request::Parts;

use super::admission::rate_limit;
use super::caller::Caller;
use super::documents::deprecation;
use super::error::ApiError;
use super::execute::{execute, execute_for_anyone};
use super::input::query_and_body::RequestBody;
use super::operations::Operation::{self, GetPet};
use super::operations::Permission;
use super::prefer::delivery::Called;
use super::simulation::Simulation;
use super::state::Api;

/// Calls an operation, or simulates the failures that the request or its key asks for.
///
/// Checks a request in this order: the key, the rate limit, the permission, the preferences, the body's size and media
/// type, the body itself.
pub async fn call(
    operation: Operation,
    api: &Api,
    head: &Parts,
    body: &mut impl RequestBody,
    caller: &mut Caller<'_>,
) -> Called {
    if operation == GetPet && deprecation::is_removed(operation, api.clock.coarse_now()) {
        return deprecation::removed().into();
    }
    if operation.permission() == Permission::Anyone {
        // Boxed, because it is rarely needed.
        let called = Box::pin(execute_for_anyone(operation, api, head)).await;
        return called.unwrap_or_else(Called::from);
    }
    if let Err(error) = caller.authenticate(api, &head.headers).await {
        return error.into();
    }
    let limits = api.rate_limits.as_ref();
    let quota = caller.count(api, operation);
    let checked = rate_limit::check(limits, quota).and_then(|()| caller.check_permission(operation));
    let simulated = match checked {
        Ok(()) => Simulation::of(operation, api, head, caller).await,
        Err(error) => Err(error),
    };
    let simulation = match simulated {
        Ok(simulation) => simulation,
        Err(error) => {
            let mut response = error.answer();
            rate_limit::write_headers(limits, quota, response.headers_mut());
            return response.into();
        }
    };
    if let Some(simulation) = simulation {
        return Box::pin(simulation.call(operation, api, head, body, caller, quota)).await;
    }
    let mut response = execute(operation, api, head, body, caller).await.unwrap_or_else(ApiError::answer);
    rate_limit::write_headers(limits, quota, response.headers_mut());
    response.into()
}
