//! The errors of operations, as the OpenAPI document shows them.

use std::sync::LazyLock;

use axum::http::StatusCode;
use serde_json::Value;

use super::openapi;
use crate::api::error::Code;
use crate::api::operations::Operation;

/// The errors of each operation, in the order of [`Operation::ALL`], and each in the order of the error table.
static ERRORS: LazyLock<[Vec<DocumentedError>; Operation::COUNT]> = LazyLock::new(|| {
    let document = openapi::source();
    Operation::ALL.map(|operation| documented_errors(&document, operation))
});

/// An error of an operation, from its example in the document.
#[derive(Debug)]
pub struct DocumentedError {
    pub code: Code,
    pub message: String,
    pub has_retry_after: bool,
}

pub fn error_with_code(operation: Operation, code: Code) -> Option<&'static DocumentedError> {
    ERRORS[operation as usize].iter().find(|error| error.code == code)
}

/// Returns the documented error with a status. If there are several, the first one of the error table.
pub fn error_with_status(operation: Operation, status: StatusCode) -> Option<&'static DocumentedError> {
    ERRORS[operation as usize].iter().find(|error| error.code.status() == status)
}

fn documented_errors(document: &Value, operation: Operation) -> Vec<DocumentedError> {
    let method = operation.method().as_str().to_ascii_lowercase();
    let responses = &document["paths"][operation.api_path()][method]["responses"];
    let error = |code: Code| {
        let response = target(document, &responses[code.status().as_str()]);
        let example = target(document, &response["content"]["application/json"]["examples"][code.as_str()]);
        let message = example["value"]["message"].as_str()?.to_owned();
        let has_retry_after = target(document, &response["headers"]["Retry-After"])["required"] == true;
        Some(DocumentedError { code, message, has_retry_after })
    };
    Code::ALL.into_iter().filter_map(error).collect()
}

/// Returns the target of a reference. Returns any other value unchanged.
fn target<'d>(document: &'d Value, value: &'d Value) -> &'d Value {
    let reference = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    reference.map_or(value, |pointer| document.pointer(pointer).expect("references in docs/openapi.json resolve"))
}
