//! The document in OpenAPI 3.0, for tools that do not read 3.1.

use serde_json::{Value, json};

/// Rewrites a document of OpenAPI 3.1. It uses only these parts of 3.1 that 3.0 does not have; a test validates the result.
pub fn rewrite(document: &mut Value) {
    document["openapi"] = json!("3.0.3");
    // 3.0 has no SPDX identifiers.
    document["info"]["license"] = json!({ "name": "MIT OR Apache-2.0", "url": "https://spdx.org/licenses/" });
    wrap_references(document);
}

/// In 3.0, the fields beside a reference are ignored. Moves references that have such fields into `allOf`.
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
