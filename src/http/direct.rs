//! The operations that are asked for most, without the router.
//!
//! The same handlers, with the same extractors in the same order, as the route table has. What is left out is the search
//! for the route and the boxes around it: a tenth of what a request costs. Whatever is not here, other methods and pages
//! of other origins among them, goes through the table, and nothing changes where a line is taken away.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::Method;
use axum::response::{IntoResponse, Response};

use super::state::Api;
use super::{messages, orders, pets};

/// The operations of one door.
#[derive(Clone, Debug)]
pub struct Direct {
    api: Api,
    door: Door,
}

#[derive(Clone, Copy, Debug)]
enum Door {
    Store,
    Messages,
}

impl Direct {
    pub fn store(api: &Api) -> Self {
        Self { api: api.clone(), door: Door::Store }
    }

    pub fn messages(api: &Api) -> Self {
        Self { api: api.clone(), door: Door::Messages }
    }

    /// The answer, or the request as it came where it is not one of the door's operations.
    pub async fn answer(&self, request: Request) -> Result<Response, Request> {
        let (api, path) = (&self.api, request.uri().path());
        Ok(match (self.door, request.method()) {
            (Door::Store, &Method::GET) if path == "/v1/pets" => list(api, request).await,
            (Door::Store, &Method::POST) if path == "/v1/pets" => create(api, request).await,
            (Door::Store, &Method::GET) if pets::id_segment(path).is_some() => get(api, request).await,
            (Door::Store, &Method::GET) if path == "/v1/store/orders" => list_orders(api, request).await,
            (Door::Store, &Method::POST) if path == "/v1/store/orders" => place_order(api, request).await,
            (Door::Messages, &Method::POST) if path == "/v1/messages" => send(api, request).await,
            _ => return Err(request),
        })
    }
}

async fn list(api: &Api, request: Request) -> Response {
    match from_head(api, request).await {
        Ok((state, caller, query)) => pets::list(state, caller, query).await.into_response(),
        Err(refused) => refused,
    }
}

async fn create(api: &Api, request: Request) -> Response {
    match from_request(api, request).await {
        Ok((state, caller, key, body)) => pets::create(state, caller, key, body).await.into_response(),
        Err(refused) => refused,
    }
}

async fn get(api: &Api, request: Request) -> Response {
    match from_head(api, request).await {
        Ok((not_removed, state, caller, query, id)) => {
            pets::get(not_removed, state, caller, query, id).await.into_response()
        }
        Err(refused) => refused,
    }
}

async fn list_orders(api: &Api, request: Request) -> Response {
    match from_head(api, request).await {
        Ok((state, caller, query)) => orders::list(state, caller, query).await.into_response(),
        Err(refused) => refused,
    }
}

async fn place_order(api: &Api, request: Request) -> Response {
    match from_request(api, request).await {
        Ok((state, caller, key, body)) => orders::place(state, caller, key, body).await.into_response(),
        Err(refused) => refused,
    }
}

async fn send(api: &Api, request: Request) -> Response {
    match from_request(api, request).await {
        Ok((state, caller, key, body)) => messages::send(state, caller, key, body).await.into_response(),
        Err(refused) => refused,
    }
}

/// The arguments of a handler that reads no body.
async fn from_head<T: FromRequestParts<Api>>(api: &Api, request: Request) -> Result<T, T::Rejection> {
    T::from_request_parts(&mut request.into_parts().0, api).await
}

/// The arguments of one that does.
async fn from_request<T: FromRequest<Api>>(api: &Api, request: Request) -> Result<T, T::Rejection> {
    T::from_request(request, api).await
}
