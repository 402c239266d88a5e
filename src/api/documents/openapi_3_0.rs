//! The document in OpenAPI 3.0, for tools that do not read 3.1.

use serde_json::{Value, json};

/// Rewrites a document of OpenAPI 3.1. Covers only the parts of 3.1 that the document uses and 3.0 does not have. A test
/// validates the result.
pub fn rewrite(document: &mut Value) {
    document["openapi"] = json!("3.0.3");
    wrap_references(document);
}

/// Moves references with other fields beside them into `allOf`, because OpenAPI 3.0 ignores these fields.
fn wrap_references(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(wrap_references),
        Value::Object(fields) => {
            fields.values_mut().for_each(wrap_references);
            if fields.len() > 1
                && let Some(reference) = fields.shift_remove("$ref")
            {
                fields.shift_insert(0, "allOf".to_owned(), json!([{ "$ref": reference }]));
            }
        }
        _ => {}
    }
}
