//! The operations that are asked for most, without the router.
//!
//! The same handlers, with the same extractors in the same order, as the route table has. What is left out is the search
//! for the route and the boxes around it: a tenth of what a request costs. Whatever is not here, other methods and pages
//! of other origins among them, goes through the table, and nothing changes where a line is taken away.
//!
//! Here a request is lent, not handed on: a future carries along what it was handed, once for each function on the way.

use std::sync::Arc;

use axum::BoxError;
use axum::body::HttpBody;
use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::request::Parts;
use bytes::Bytes;

use super::error::ApiError;
use super::input::JsonBody;
use super::json::Response;
use super::state::Api;
use super::traffic::Route;
use super::{messages, orders, pets};
use crate::config::Listener;

/// The operations of one listener.
#[derive(Clone, Debug)]
pub struct Direct {
    api: Api,
    listener: Listener,
    /// Where requests are counted.
    pets: Arc<Route>,
    pet: Arc<Route>,
    orders: Arc<Route>,
    messages: Arc<Route>,
}

#[derive(Clone, Copy, Debug)]
pub enum Operation {
    ListPets,
    CreatePet,
    GetPet,
    ListOrders,
    PlaceOrder,
    SendMessage,
}

impl Direct {
    pub fn new(api: &Api, listener: Listener) -> Self {
        let route = |path| api.traffic.route(path);
        Self {
            api: api.clone(),
            listener,
            pets: route("/v1/pets"),
            pet: route("/v1/pets/{petId}"),
            orders: route("/v1/store/orders"),
            messages: route("/v1/messages"),
        }
    }

    /// Where the requests for an operation are counted.
    pub fn route(&self, operation: Operation) -> &Route {
        match operation {
            Operation::ListPets | Operation::CreatePet => &self.pets,
            Operation::GetPet => &self.pet,
            Operation::ListOrders | Operation::PlaceOrder => &self.orders,
            Operation::SendMessage => &self.messages,
        }
    }

    /// Which of the listener's operations is asked for, where it is one of them.
    pub fn operation(&self, request: &Parts) -> Option<Operation> {
        let path = request.uri.path();
        match (self.listener, &request.method) {
            (Listener::Store, &Method::GET) if path == "/v1/pets" => Some(Operation::ListPets),
            (Listener::Store, &Method::POST) if path == "/v1/pets" => Some(Operation::CreatePet),
            (Listener::Store, &Method::GET) if pets::id_segment(path).is_some() => Some(Operation::GetPet),
            (Listener::Store, &Method::GET) if path == "/v1/store/orders" => Some(Operation::ListOrders),
            (Listener::Store, &Method::POST) if path == "/v1/store/orders" => Some(Operation::PlaceOrder),
            (Listener::Messages, &Method::POST) if path == "/v1/messages" => Some(Operation::SendMessage),
            _ => None,
        }
    }

    pub async fn answer<B>(&self, operation: Operation, request: &mut Parts, body: &mut B) -> Response
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        let answer = match operation {
            Operation::ListPets => self.list(request).await,
            Operation::CreatePet => self.create(request, body).await,
            Operation::GetPet => self.get(request).await,
            Operation::ListOrders => self.list_orders(request).await,
            Operation::PlaceOrder => self.place_order(request, body).await,
            Operation::SendMessage => self.send(request, body).await,
        };
        answer.unwrap_or_else(ApiError::answer)
    }

    async fn list(&self, from: &mut Parts) -> Result<Response, ApiError> {
        pets::list(self.take(from).await?, self.take(from).await?, self.take(from).await?).await
    }

    async fn create<B>(&self, from: &mut Parts, body: &mut B) -> Result<Response, ApiError>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        pets::create(
            self.take(from).await?,
            self.take(from).await?,
            self.take(from).await?,
            JsonBody::read(from, body).await?,
        )
        .await
    }

    async fn get(&self, from: &mut Parts) -> Result<Response, ApiError> {
        pets::get(
            self.take(from).await?,
            self.take(from).await?,
            self.take(from).await?,
            self.take(from).await?,
            self.take(from).await?,
        )
        .await
    }

    async fn list_orders(&self, from: &mut Parts) -> Result<Response, ApiError> {
        orders::list(self.take(from).await?, self.take(from).await?, self.take(from).await?).await
    }

    async fn place_order<B>(&self, from: &mut Parts, body: &mut B) -> Result<Response, ApiError>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        orders::place(
            self.take(from).await?,
            self.take(from).await?,
            self.take(from).await?,
            JsonBody::read(from, body).await?,
        )
        .await
    }

    async fn send<B>(&self, from: &mut Parts, body: &mut B) -> Result<Response, ApiError>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin,
    {
        messages::send(
            self.take(from).await?,
            self.take(from).await?,
            self.take(from).await?,
            JsonBody::read(from, body).await?,
        )
        .await
    }

    /// The handler's next argument.
    async fn take<T>(&self, from: &mut Parts) -> Result<T, ApiError>
    where
        T: FromRequestParts<Api, Rejection: Into<ApiError>>,
    {
        T::from_request_parts(from, &self.api).await.map_err(Into::into)
    }
}
