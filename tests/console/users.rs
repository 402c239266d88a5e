//! Users of the console.

use petstore::domain::Role;
use testkit::ConsoleUser;

use crate::service::{OPERATOR, Service};

pub const ADA: &str = "ada@lovelace.example";

/// A service and a member of its staff with a session.
pub async fn signed_in() -> (Service, ConsoleUser) {
    let service = Service::start().await;
    let ada = staff(&service, ADA).await;
    (service, ada)
}

/// Signs in, and creates a key named `laptop`.
pub async fn signed_in_with_key() -> (Service, ConsoleUser, String) {
    let (service, mut ada) = signed_in().await;
    let key = ada.key("laptop").await;
    (service, ada, key)
}

/// Signs up and becomes staff.
pub async fn staff(service: &Service, email: &str) -> ConsoleUser {
    let user = ConsoleUser::signed_in(service, email).await;
    make_staff(service, email).await;
    user
}

pub async fn make_staff(service: &Service, email: &str) {
    assert!(service.store.set_role(service.account_of(email).await, Role::Staff, OPERATOR).await.unwrap());
}

/// Another browser with the cookie of `user`.
pub fn copy(user: &ConsoleUser) -> ConsoleUser {
    ConsoleUser { address: user.address, cookie: user.cookie.clone() }
}

/// The status of an API request with `key`.
pub async fn status(service: &Service, key: &str) -> u16 {
    service.request("GET", "/v1/pets").key(key).send().await.status()
}
