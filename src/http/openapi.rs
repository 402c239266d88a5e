//! The OpenAPI 3.1 document: operations and schemas from the code beside them, what they share from here.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};
use utoipa::OpenApi;

use super::deprecation::REMOVED_AT;
use super::error::{ApiError, Code};
use super::state::Api;
use crate::config::Addresses;
use crate::domain::{Deployment, Timestamp};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Animal store",
        version = "1.0.0",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
        description = "Lists, adds and fetches the animals of a store; a getting-started call sends a message.\n\n\
            Every operation needs an API key as a bearer token. Every error has the body `Error`; only what the HTTP \
            parser itself refuses (a malformed request with 400, a URI too long with 414, header fields too large with \
            431) may come without a body and without `X-Request-Id`. Wherever GET is answered, HEAD is too.\n\n\
            A request that is wrong in several ways gets the first answer of this order: route (404), method (405), \
            credential (401), size and media type of the body (413, 415), syntax and values (400), then the operation.\n\n\
            What carries `x-provisional: true` may change before 2.0."
    ),
    tags(
        (name = "pets", description = "The animals of the store."),
        (name = "messages", description = "The getting-started call, at an address of its own."),
    ),
    paths(super::pets::list, super::pets::create, super::pets::get, super::messages::send),
    components(schemas(schema::Error))
)]
struct Document;

/// The interface's shapes, as far as no type of the code has them already.
pub mod schema {
    use crate::domain::PetStatus;

    /// What is needed to add an animal.
    #[derive(utoipa::ToSchema)]
    #[schema(rename_all = "camelCase")]
    pub struct NewPet {
        /// The animal's name: not only white space, no control characters; kept as sent.
        #[schema(
            min_length = 1,
            max_length = 255,
            pattern = r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$"
        )]
        pub name: String,
        /// Identifier of the category the animal belongs to.
        pub category_id: i64,
        /// Availability of the animal; `available` when omitted.
        #[schema(required = false)]
        pub status: PetStatus,
    }

    /// An animal.
    #[derive(utoipa::ToSchema)]
    #[schema(rename_all = "camelCase")]
    pub struct Pet {
        /// Unique identifier assigned by the service on creation.
        #[schema(minimum = 1)]
        pub id: i64,
        /// The animal's name.
        pub name: String,
        /// Identifier of the category the animal belongs to.
        pub category_id: i64,
        /// Availability of the animal.
        pub status: PetStatus,
    }

    /// A page of animals, in order of their ids.
    #[derive(utoipa::ToSchema)]
    #[schema(max_items = 100)]
    pub struct Pets(pub Vec<Pet>);

    /// What is needed to send a message.
    #[derive(utoipa::ToSchema)]
    pub struct NewMessage {
        /// The message text: not only white space, no control characters but tab, line feed and carriage return.
        #[schema(
            min_length = 1,
            max_length = 10_000,
            pattern = r"^[^\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]*$"
        )]
        pub message: String,
    }

    /// Every error of the API.
    #[derive(utoipa::ToSchema)]
    pub struct Error {
        /// Machine-readable error code.
        pub code: String,
        /// Human-readable description: what was wrong, and what is allowed.
        pub message: String,
        /// The HTTP status code.
        #[schema(minimum = 400, maximum = 599)]
        pub status: i32,
    }
}

/// The document as this process serves it, before and after the removal of its deprecated operation.
#[derive(Debug)]
pub struct Documents {
    before: Bytes,
    after: Bytes,
}

impl Documents {
    pub fn new(addresses: &Addresses, deployment: Deployment) -> Self {
        let before = document(addresses, deployment, REMOVED_AT.minus_one_millisecond());
        let after = document(addresses, deployment, REMOVED_AT);
        Self { before: before.into(), after: after.into() }
    }
}

pub async fn serve(State(api): State<Api>) -> Response {
    let documents = &api.documents;
    let document = if api.clock.now() < REMOVED_AT { &documents.before } else { &documents.after };
    ([(CONTENT_TYPE, "application/json")], document.clone()).into_response()
}

/// The document of a service at `addresses`, as of `now`: pretty-printed JSON with a line feed at its end.
pub fn document(addresses: &Addresses, deployment: Deployment, now: Timestamp) -> String {
    let mut document = serde_json::to_value(Document::openapi()).expect("the document is plain data");
    document["servers"] = servers(addresses, deployment);
    document["security"] = json!([{ "apiKey": [] }]);
    document["components"]["securitySchemes"] = json!({ "apiKey": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key: create an account, then generate a key. Keys of production begin with `pet_live_`, of staging with `pet_test_`.",
    }});
    document["components"]["responses"] = error_responses();
    document["components"]["headers"] = headers();
    document["paths"]["/messages"]["servers"] = json!([
        { "url": addresses.messages_base_url.as_str(), "description": "messages" }
    ]);
    let paths = document["paths"].as_object_mut().expect("the document has paths");
    if now >= REMOVED_AT {
        paths.shift_remove("/pets/{petId}");
    }
    for operation in paths.values_mut().flat_map(|path| path.as_object_mut().expect("a path is an object").values_mut())
    {
        if operation.get("operationId").is_some() {
            complete(operation);
        }
    }
    if now >= REMOVED_AT {
        let created = &mut document["paths"]["/pets"]["post"]["responses"]["201"]["headers"];
        created.as_object_mut().expect("the answer has headers").shift_remove("Location");
    }
    let mut text = serde_json::to_string_pretty(&document).expect("a JSON value always encodes");
    text.push('\n');
    text
}

fn servers(addresses: &Addresses, deployment: Deployment) -> Value {
    let own = json!({ "url": addresses.base_url.as_str(), "description": deployment.as_str() });
    let sibling = addresses.staging_base_url.as_ref().filter(|_| deployment == Deployment::Production);
    let sibling = sibling.map(|url| json!({ "url": url.as_str(), "description": Deployment::Staging.as_str() }));
    Value::Array([own].into_iter().chain(sibling).collect())
}

/// The errors that operations share, each described once.
const SHARED: [(&str, &str, &[Code]); 8] = [
    ("Unauthorized", "The API key is missing or not valid.", &[Code::MissingApiKey, Code::InvalidApiKey]),
    ("MethodNotAllowed", "The path has no such method; `Allow` names those it has.", &[Code::MethodNotAllowed]),
    (
        "RequestTimeout",
        "The request did not arrive in time: 10 s for its head, 30 s for the whole.",
        &[Code::RequestTimeout],
    ),
    ("PayloadTooLarge", "The body is larger than 64 KiB.", &[Code::PayloadTooLarge]),
    ("UnsupportedMediaType", "The body is not declared as `application/json`.", &[Code::UnsupportedMediaType]),
    ("InternalError", "Something went wrong on the service's side.", &[Code::InternalError]),
    (
        "Unavailable",
        "The service can't take the request now; `Retry-After` says when to try again.",
        &[Code::Unavailable],
    ),
    (
        "BadRequest",
        "A field, a parameter or the body as a whole is refused; the message names it.",
        &[Code::InvalidJson, Code::MissingField, Code::InvalidValue, Code::UnknownParameter],
    ),
];

fn error_responses() -> Value {
    let responses = SHARED.iter().map(|(name, description, codes)| {
        let mut headers = json!({ "X-Request-Id": header("X-Request-Id") });
        match codes[0] {
            Code::MissingApiKey => headers["WWW-Authenticate"] = header("WWW-Authenticate"),
            Code::MethodNotAllowed => headers["Allow"] = header("Allow"),
            Code::Unavailable => headers["Retry-After"] = header("Retry-After"),
            _ => {}
        }
        let response = json!({ "description": description, "headers": headers, "content": error_content(codes) });
        ((*name).to_owned(), response)
    });
    Value::Object(responses.collect())
}

fn error_content(codes: &[Code]) -> Value {
    let examples = codes.iter().map(|code| {
        let error = ApiError::example(*code);
        let value: Value = serde_json::from_slice(&error.body()).expect("an error's body is JSON");
        (code.as_str().to_owned(), json!({ "value": value }))
    });
    let examples: serde_json::Map<_, _> = examples.collect();
    json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Error" }, "examples": examples } })
}

/// Gives an operation the answers and headers that all have.
fn complete(operation: &mut Value) {
    let deprecated = operation["operationId"] == json!("getPet");
    if deprecated {
        operation["deprecated"] = json!(true);
    }
    let is_list = operation["operationId"] == json!("listPets");
    let responses = operation["responses"].as_object_mut().expect("an operation has responses");
    for (name, _, codes) in &SHARED {
        let reference = json!({ "$ref": format!("#/components/responses/{name}") });
        responses.entry(codes[0].status().as_str()).or_insert(reference);
    }
    if let Some(response) = responses.get_mut("404") {
        response["content"] = error_content(&[Code::NotFound]);
    }
    if deprecated {
        // A shared answer becomes the operation's own, since every answer of it carries its deprecation.
        let shared = error_responses();
        for response in responses.values_mut() {
            if let Some(name) = response["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
                *response = shared[name].clone();
            }
        }
    }
    for (status, response) in responses.iter_mut().filter(|(_, response)| response.get("$ref").is_none()) {
        response["headers"]["X-Request-Id"] = header("X-Request-Id");
        // The answer to another method is not this operation's.
        if deprecated && status != "405" {
            for name in ["Deprecation", "Sunset"] {
                response["headers"][name] = header(name);
            }
            response["headers"]["Link"] = header("DeprecationLink");
        }
        if status == "201" {
            response["headers"]["Location"] = header("Location");
        }
        if is_list && status == "200" {
            response["headers"]["Link"] = header("NextPageLink");
        }
    }
    // The parameter by which a list goes on is ours, not the interface's.
    for parameter in operation["parameters"].as_array_mut().into_iter().flatten() {
        if parameter["name"] == json!("after") {
            parameter["x-provisional"] = json!(true);
        }
    }
}

fn header(name: &str) -> Value {
    json!({ "$ref": format!("#/components/headers/{name}") })
}

fn headers() -> Value {
    let header = |description: &str, example: &str| json!({ "description": description, "schema": { "type": "string" }, "example": example });
    let mut next = header(
        "The next page, while more animals follow (RFC 8288).",
        "<https://api.example.com/v1/pets?limit=20&after=20>; rel=\"next\"",
    );
    next["x-provisional"] = json!(true);
    json!({
        "X-Request-Id": header("The request's id: the caller's if it is 1 to 128 visible ASCII characters, else a new one.", "8f14e45fceea167a-2a"),
        "WWW-Authenticate": header("How to authenticate (RFC 6750).", "Bearer realm=\"petstore\""),
        "Allow": header("The methods that the path has.", "GET,HEAD,POST"),
        "Retry-After": header("After how many seconds to try again.", "1"),
        "Location": header("The address of the new animal, while the operation it points to exists.", "https://api.example.com/v1/pets/31"),
        "NextPageLink": next,
        "Deprecation": header("Since when the operation is deprecated (RFC 9745).", "@1795132800"),
        "Sunset": header("When the operation is removed (RFC 8594).", "Thu, 05 Dec 2030 00:00:00 GMT"),
        "DeprecationLink": header(
            "A page about the deprecation, and the operation to use instead.",
            "<https://api.example.com/docs/deprecations>; rel=\"deprecation\", <https://api.example.com/v1/pets>; rel=\"successor-version\"",
        ),
    })
}
