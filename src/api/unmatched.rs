//! Responds to paths and methods without an operation.

use axum::http::header::ALLOW;
use axum::http::{HeaderMap, HeaderValue, Method};

use super::documents::deprecation;
use super::error::{ApiError, Code};
use super::operations::{Listener, Operation, Target};
use super::response::Response;
use super::state::Api;

/// Responds to a method that no operation at the path of `here` has: 405, or 404 if this service has none of them.
pub fn answer_other_method(here: Operation, api: &Api) -> Response {
    let is_served = |it| match it {
        Operation::GetSecurityTxt => !api.addresses.security_contacts.is_empty(),
        Operation::ListRequests | Operation::DeleteRequests => api.account_requests.keeps_all,
        _ => !deprecation::is_removed(it, api.clock.coarse_now()),
    };
    let is_here = |it: &Operation| it.path() == here.path() && is_served(*it);
    let operations = Operation::ALL.into_iter().filter(is_here);
    let methods: Vec<_> = operations.flat_map(Operation::methods).map(Method::as_str).collect();
    if methods.is_empty() {
        return ApiError::route_not_found().answer();
    }
    let mut response = ApiError::method_not_allowed().answer();
    let methods = HeaderValue::try_from(methods.join(",")).expect("methods are visible ASCII characters");
    response.headers_mut().insert(ALLOW, methods);
    response
}

impl Api {
    /// The error for a path that `listener` does not have. If another listener has it, the message names its address.
    pub fn path_not_found(&self, listener: Listener, request: &HeaderMap, path: &str) -> ApiError {
        let addresses = self.addresses.reached_by(listener, request);
        let (other, address) = match listener {
            Listener::Store => (Listener::Messages, &addresses.messages_base_url),
            Listener::Messages => (Listener::Store, &addresses.base_url),
            Listener::Ops => return ApiError::route_not_found(),
        };
        match Target::of(other, &Method::GET, path).at_path() {
            Some(operation) if operation.is_documented() => {
                let message = format!("This path does not exist here. It belongs to `{}`.", address.as_str());
                ApiError::new(Code::NotFound, message)
            }
            _ => ApiError::route_not_found(),
        }
    }
}
