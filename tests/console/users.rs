//! Users of the console.

use testkit::ConsoleUser;

use crate::service::Service;

pub const ADA: &str = "ada@lovelace.example";

/// A service and a user with a session.
pub async fn signed_in() -> (Service, ConsoleUser) {
    let service = Service::start().await;
    let ada = ConsoleUser::signed_in(&service, ADA).await;
    (service, ada)
}

/// Another browser with the cookie of `user`.
pub fn copy(user: &ConsoleUser) -> ConsoleUser {
    ConsoleUser { address: user.address, cookie: user.cookie.clone() }
}

/// The status of an API request with `key`.
pub async fn status(service: &Service, key: &str) -> u16 {
    service.request("GET", "/v1/pets").key(key).send().await.status()
}
