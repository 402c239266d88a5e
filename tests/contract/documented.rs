//! The operations of the table, with what the document of a service says about each.

use petstore::api::Operation;
use petstore::api::documents::deprecation::is_removed;
use petstore::domain::Timestamp;
use serde_json::Value;
use testkit::Request;

use crate::document::expanded;
use crate::service::{NOW, Service};

pub struct Documented {
    pub operation: Operation,
    /// The operation's part of the document, with references replaced by their targets.
    pub value: Value,
}

/// The operations that the document lists at the time `now`.
pub fn operations(now: Timestamp) -> impl Iterator<Item = Operation> {
    Operation::documented().filter(move |operation| !is_removed(*operation, now))
}

impl Documented {
    /// Returns the operations that `service` documents, in the order of the table.
    pub async fn all(service: &Service) -> Vec<Self> {
        let document = expanded(&service.document().await);
        let value = |operation: Operation| {
            let method = operation.method().as_str().to_ascii_lowercase();
            document["paths"][operation.api_path()][method].clone()
        };
        operations(NOW).map(|operation| Self { operation, value: value(operation) }).collect()
    }

    pub fn id(&self) -> &'static str {
        self.operation.id()
    }

    pub fn is_post(&self) -> bool {
        self.operation.method() == "POST"
    }

    /// The example of the request body. Empty if the operation takes none.
    pub fn example(&self) -> String {
        let example = self.value.pointer("/requestBody/content/application~1json/example");
        example.map(Value::to_string).unwrap_or_default()
    }

    pub fn response(&self, status: u16) -> &Value {
        let response = &self.value["responses"][status.to_string()];
        assert!(response.is_object(), "{} does not document {status}", self.id());
        response
    }

    /// The id for a path. The first order is delivered by the time that one is cancelled.
    pub fn path_id(&self) -> &'static str {
        if self.operation == Operation::CancelOrder { "2" } else { "1" }
    }

    /// A request with a key and without a body. `id` replaces the parameter of the path.
    pub fn request(&self, service: &Service, id: &str, query: &str) -> Request {
        service.request_to_query(self.operation, id, query).key(&service.key)
    }
}
