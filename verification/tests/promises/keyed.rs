//! The operations that take an idempotency key, and their effects in a database.

use std::collections::HashMap;
use std::net::SocketAddr;

use testkit::{Database, Request, Response, Server, TIMEOUT, eventually, new_message, new_pet};

/// Counts the effects of each text: animals with this name, messages, orders of an animal for sale, and approvals.
pub fn effects(database: &Database) -> HashMap<String, usize> {
    let texts = format!(
        "SELECT name FROM pets WHERE name NOT IN ('{FOR_SALE}', '{ORDERED}')
         UNION ALL SELECT message FROM messages
         UNION ALL SELECT 'order of ' || pet_id FROM orders JOIN pets ON pets.id = pet_id WHERE name = '{FOR_SALE}'
         UNION ALL SELECT 'approval of ' || id FROM orders WHERE status = 1"
    );
    let mut effects = HashMap::new();
    for text in database.sql(&texts).lines() {
        *effects.entry(text.to_owned()).or_default() += 1;
    }
    effects
}

/// Asserts that there are `count` texts, each with one effect.
pub fn assert_effects_are_single(database: &Database, count: usize) {
    let effects = effects(database);
    assert_eq!(effects.len(), count);
    let multiple: Vec<_> = effects.iter().filter(|(_, effects)| **effects != 1).collect();
    assert!(multiple.is_empty(), "{multiple:?}");
}

/// The names of animals created for an order, and for an order and its approval.
const FOR_SALE: &str = "for sale";
const ORDERED: &str = "ordered";

/// An operation that takes an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    CreatePet,
    SendMessage,
    PlaceOrder,
    ApproveOrder,
}

impl Operation {
    pub const ALL: [Self; 4] = [Self::CreatePet, Self::SendMessage, Self::PlaceOrder, Self::ApproveOrder];

    /// The operations that take any text.
    pub const OF_TEXT: [Self; 2] = [Self::CreatePet, Self::SendMessage];

    /// The operation of the `n`-th request of a test that uses all of them.
    pub const fn of(n: usize) -> Self {
        Self::ALL[n % Self::ALL.len()]
    }

    /// The status of a successful response.
    pub const fn status(self) -> u16 {
        match self {
            Self::CreatePet | Self::PlaceOrder => 201,
            Self::SendMessage => 202,
            Self::ApproveOrder => 200,
        }
    }

    /// Prepares a request: `unique` itself, or the text of an order or approval after creating its animal and order.
    pub fn text(self, service: &Server, key: &str, unique: &str) -> String {
        let create = |operation: Self, step: &str, text: &str| {
            let response = operation.send_until_settled(service, key, &format!("{unique}-{step}"), text);
            assert_eq!(response.status(), operation.status(), "{response:?}");
            response.id()
        };
        match self {
            Self::CreatePet | Self::SendMessage => unique.to_owned(),
            Self::PlaceOrder => format!("order of {}", create(Self::CreatePet, "animal", FOR_SALE)),
            Self::ApproveOrder => {
                let pet = create(Self::CreatePet, "animal", ORDERED);
                format!("approval of {}", create(Self::PlaceOrder, "order", &format!("order of {pet}")))
            }
        }
    }

    /// A request for `text`, without an idempotency key.
    pub fn request(self, service: &Server, key: &str, text: &str) -> Request {
        let id = text.rsplit(' ').next().unwrap_or_default();
        let (path, body) = match self {
            Self::CreatePet => ("/v1/pets".into(), new_pet(text)),
            Self::SendMessage => ("/v1/messages".into(), new_message(text)),
            Self::PlaceOrder => ("/v1/store/orders".into(), format!(r#"{{"petId":{id}}}"#)),
            Self::ApproveOrder => (format!("/v1/store/orders/{id}/approve"), String::new()),
        };
        Request::new(self.address(service), "POST", &path).key(key).json(body)
    }

    pub fn address(self, service: &Server) -> SocketAddr {
        if self == Self::SendMessage { service.messages() } else { service.store() }
    }

    /// Sends a request once, with an idempotency key.
    pub fn send(self, service: &Server, key: &str, idempotency_key: &str, text: &str) -> Response {
        self.request(service, key, text).header("idempotency-key", idempotency_key).send_blocking()
    }

    /// Sends a request until the response no longer tells the client to retry.
    pub fn send_until_settled(self, service: &Server, key: &str, idempotency_key: &str, text: &str) -> Response {
        eventually(TIMEOUT, "settling", || {
            let response = self.send(service, key, idempotency_key, text);
            (!response.says_to_retry()).then_some(response)
        })
    }
}
