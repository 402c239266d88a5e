//! Texts that users choose: the names of animals and keys, and messages.

use super::{Invalid, grouped};

/// A text of 1 to `MAX` Unicode characters, not only white space, stored as sent. Of control characters, it may have tab,
/// line feed and carriage return, and these only with `LINES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<const MAX: usize, const LINES: bool>(String);

impl<const MAX: usize, const LINES: bool> Text<MAX, LINES> {
    pub const MAX_CHARACTERS: usize = MAX;

    /// Characters are Unicode scalar values, and control characters those of the category Cc.
    pub fn parse(text: String) -> Result<Self, Invalid> {
        let length = text.chars().count();
        if length == 0 || length > MAX {
            let (length, max) = (grouped(length as u64), grouped(MAX as u64));
            return Err(Invalid(format!("has {length} characters; 1 to {max} are allowed")));
        }
        if text.chars().all(char::is_whitespace) {
            return Err(Invalid("is only white space; some other character is needed".into()));
        }
        let is_allowed = |c: char| !c.is_control() || (LINES && matches!(c, '\t' | '\n' | '\r'));
        if let Some(control) = text.chars().find(|c| !is_allowed(*c)) {
            let control = u32::from(control);
            return Err(Invalid(format!("has the control character U+{control:04X}, which is not allowed")));
        }
        Ok(Self(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}
