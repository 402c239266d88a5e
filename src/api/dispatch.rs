//! Calls operations or simulates their failures, and responds to paths and methods that have none.

use axum::http::header::ALLOW;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method};

use super::call::Call;
use super::caller::Caller;
use super::documents::deprecation;
use super::documents::openapi::Version;
use super::endpoints::{health, messages, metrics, orders, pets, well_known};
use super::error::{ApiError, Code};
use super::input::query_and_body::RequestBody;
use super::listener::Listener;
use super::operations::Operation::{self, *};
use super::operations::Target;
use super::response::Response;
use super::simulation::{Simulation, respond_at_date};
use super::state::Api;
use crate::domain::Transition;

impl Operation {
    /// Calls the operation, or simulates the failures that the request or its key asks for.
    pub async fn call(
        self,
        api: &Api,
        head: &Parts,
        body: &mut impl RequestBody,
        caller: &mut Caller<'_>,
    ) -> Result<Response, ApiError> {
        if let Some(simulator) = &api.simulator
            && let Some(simulation) = Simulation::of(simulator, self, api, head, caller).await?
        {
            return Ok(Box::pin(simulation.call(self, api, head, body, caller)).await);
        }
        self.execute(api, head, body, caller).await
    }

    /// Executes the operation. If it needs an API key, runs the checks first. The error is the response of a failed check, or
    /// of an operation that was rejected.
    ///
    /// The request is passed by reference, because every by-value argument is copied into each future on the call path.
    /// The futures of rare operations are boxed to keep this one small.
    pub async fn execute(
        self,
        api: &Api,
        head: &Parts,
        body: &mut impl RequestBody,
        caller: &mut Caller<'_>,
    ) -> Result<Response, ApiError> {
        let mut check = async || Call::check(self, api, head, body, caller).await;
        match self {
            GetPet if self.is_removed(api.clock.coarse_now()) => Err(deprecation::removed()),
            ListPets => pets::list(&check().await?).await,
            CreatePet => pets::create(&check().await?).await,
            GetPet => pets::get(&check().await?).await,
            ListOrders => orders::list(&check().await?).await,
            PlaceOrder => orders::place(&check().await?).await,
            GetOrder => Box::pin(orders::get(&check().await?)).await,
            ApproveOrder => Box::pin(orders::change(&check().await?, caller.peer, Transition::Approve)).await,
            DeliverOrder => Box::pin(orders::change(&check().await?, caller.peer, Transition::Deliver)).await,
            CancelOrder => Box::pin(orders::change(&check().await?, caller.peer, Transition::Cancel)).await,
            SendMessage => messages::send(&check().await?).await,
            ListMessages => Box::pin(messages::list(&check().await?)).await,
            GetLiveness => Ok(health::live()),
            GetReadiness => Box::pin(health::ready(api)).await,
            GetMetrics => Ok(Box::pin(metrics::serve(api, &head.headers)).await),
            GetSecurityTxt => well_known::security_txt(api, &head.headers),
            GetDocument | GetDocument30 => {
                let version = if self == GetDocument { Version::V3_1 } else { Version::V3_0 };
                let document = |now| api.documents.serve(version, now, &head.headers);
                respond_at_date(api, &head.headers, caller, document)
            }
        }
    }

    /// Responds to a method that no operation at this operation's path has: 405, or 404 if all of them are removed.
    pub fn answer_other_method(self, api: &Api) -> Response {
        let now = api.clock.coarse_now();
        let here = self.at_same_path().filter(|operation| !operation.is_removed(now));
        let methods: Vec<_> = here.flat_map(Self::methods).map(Method::as_str).collect();
        if methods.is_empty() {
            return ApiError::route_not_found().answer();
        }
        let mut response = ApiError::method_not_allowed().answer();
        let methods = HeaderValue::try_from(methods.join(",")).expect("methods are visible ASCII characters");
        response.headers_mut().insert(ALLOW, methods);
        response
    }
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
