//! The failures that forms of a staging console can simulate, so that users see what a client gets.

use super::submission::Form;

/// A form's choices: a value of `Prefer`, and its text.
pub type Choices = &'static [(&'static str, &'static str)];

pub const CHOICES: Choices = &[
    ("", "Nothing"),
    ("code=503", "Overload (503)"),
    ("code=429", "Rate limit exceeded (429)"),
    ("code=500", "Internal error (500)"),
    ("code=409", "Conflict (409)"),
    ("error=invalid_api_key", "Expired key (401)"),
    ("delay=3000", "Response 3 seconds late"),
    ("drop=response", "Response lost"),
    ("drop=request", "Request lost"),
    ("date=2030-12-05", "Day of the removal, 5 December 2030"),
];

/// Returns the value of `Prefer` that the user chose. `None` if it is none of the choices, or the one without a failure.
pub fn chosen(fields: &Form) -> Option<&'static str> {
    CHOICES.iter().map(|(value, _)| *value).find(|value| !value.is_empty() && *value == fields.get("prefer"))
}
