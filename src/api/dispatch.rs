//! The way of a call: the caller is admitted, then the operation is executed, or its failures are simulated.

use axum::http::request::Parts;

use super::admission::rate_limit;
use super::call::Call;
use super::caller::Caller;
use super::documents::deprecation;
use super::error::ApiError;
use super::execute::{execute, execute_for_anyone};
use super::input::query_and_body::RequestBody;
use super::operations::Operation::{self, GetPet};
use super::operations::Permission;
use super::prefer::delivery::Called;
use super::simulation;
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
    let account = match caller.authenticate(api, &head.headers).await {
        Ok(account) => account,
        Err(error) => return error.into(),
    };
    let (caller, limits) = (&*caller, api.rate_limits.as_ref());
    let quota = caller.count(api, operation);
    let mut call = Call { operation, api, head, caller, account, body: String::new() };
    let simulated = match rate_limit::check(limits, quota).and_then(|()| caller.check_permission(operation)) {
        Ok(()) => simulation::call(&mut call, body, quota).await,
        Err(error) => Err(error),
    };
    let called = match simulated {
        Ok(Some(called)) => return called,
        Ok(None) => execute(&mut call, body).await,
        Err(error) => Err(error),
    };
    let mut response = called.unwrap_or_else(ApiError::answer);
    rate_limit::write_headers(limits, quota, response.headers_mut());
    response.into()
}
