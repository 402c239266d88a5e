//! What an answer leads to: links from an operation to those that its answer has the arguments for (OpenAPI 3.1,
//! "Link Object"). Programs follow them from creating an animal to the delivery of its order.

use serde_json::{Map, Value, json};

/// From where, on which answer, under which name, to where, and with what.
type Link = (&'static str, &'static str, &'static str, &'static str, Argument);

enum Argument {
    /// A parameter of the path, and where its value stands in the answer's body.
    Parameter(&'static str, &'static str),
    /// The field `petId` of the body, and where its value stands in the answer's.
    Order(&'static str),
}

use Argument::{Order, Parameter};

const LINKS: [Link; 15] = [
    ("listPets", "200", "order", "placeOrder", Order("/0/id")),
    ("createPet", "201", "pet", "getPet", Parameter("petId", "/id")),
    ("createPet", "201", "order", "placeOrder", Order("/id")),
    ("getPet", "200", "order", "placeOrder", Order("/id")),
    ("listOrders", "200", "pet", "getPet", Parameter("petId", "/0/petId")),
    ("listOrders", "200", "cancel", "cancelOrder", Parameter("orderId", "/0/id")),
    ("placeOrder", "201", "pet", "getPet", Parameter("petId", "/petId")),
    ("placeOrder", "201", "approve", "approveOrder", Parameter("orderId", "/id")),
    ("placeOrder", "201", "cancel", "cancelOrder", Parameter("orderId", "/id")),
    ("approveOrder", "200", "pet", "getPet", Parameter("petId", "/petId")),
    ("approveOrder", "200", "deliver", "deliverOrder", Parameter("orderId", "/id")),
    ("approveOrder", "200", "cancel", "cancelOrder", Parameter("orderId", "/id")),
    ("deliverOrder", "200", "pet", "getPet", Parameter("petId", "/petId")),
    ("cancelOrder", "200", "pet", "getPet", Parameter("petId", "/petId")),
    ("cancelOrder", "200", "order", "placeOrder", Order("/petId")),
];

/// Adds to the responses of the operation `name` the links there are from it, but for those to operations that are gone.
pub fn add(responses: &mut Map<String, Value>, name: &str, is_there: impl Fn(&str) -> bool) {
    for (_, status, link, to, argument) in LINKS.iter().filter(|(from, _, _, to, _)| *from == name && is_there(to)) {
        let mut value = json!({ "operationId": to });
        match argument {
            Parameter(name, place) => value["parameters"] = json!({ *name: format!("$response.body#{place}") }),
            Order(place) => value["requestBody"] = json!({ "petId": format!("$response.body#{place}") }),
        }
        responses[*status]["links"][*link] = value;
    }
}
