//! The fields of JSON bodies (RFC 8259), parsed one by one so that each error names its field.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::de::Read;
use serde_json::value::RawValue;

use crate::api::error::{ApiError, Code};
use crate::domain::Invalid;

/// 2^53. Below it, every whole number is a double. Other numbers, such as 1e-400, count as the nearest double.
const EXACT: f64 = (1_u64 << 53) as f64;

/// The fields of an operation's body, as JSON text.
///
/// The whole body is checked to be JSON before any field is parsed. Unknown fields may have any value, at any depth.
pub struct Fields<'b, const N: usize> {
    names: [&'static str; N],
    values: [Option<&'b str>; N],
}

impl<'b, const N: usize> Fields<'b, N> {
    pub fn parse(text: &'b str, names: [&'static str; N]) -> Result<Self, ApiError> {
        let (mut values, mut doubled) = ([None; N], None);
        let read = read_object(serde_json::Deserializer::from_str(text), |key, value| {
            let key = string(key).ok();
            if let Some(position) = key.and_then(|key| names.iter().position(|name| *name == key))
                && values[position].replace(value).is_some()
            {
                doubled = Some(names[position]);
            }
        });
        read.map_err(|error| {
            let message = match error.classify() {
                _ if text.starts_with('\u{feff}') => {
                    "The body begins with a byte order mark: send it without one (RFC 8259, section 8.1).".to_owned()
                }
                serde_json::error::Category::Data => "The body is not a JSON object.".to_owned(),
                _ if text.trim_ascii().is_empty() => "The body is empty: send a JSON object.".to_owned(),
                _ => format!("The body is not JSON: {error}."),
            };
            ApiError::new(Code::InvalidJson, message)
        })?;
        match doubled {
            Some(name) => Err(ApiError::new(Code::InvalidJson, format!("The field `{name}` is given more than once."))),
            None => Ok(Self { names, values }),
        }
    }

    /// Rejects bodies without a required field. Called before any field is parsed.
    pub fn require(&self, required: &[&str]) -> Result<(), ApiError> {
        let absent =
            self.names.iter().zip(&self.values).find(|(name, value)| required.contains(name) && value.is_none());
        absent.map_or(Ok(()), |(name, _)| Err(missing(name)))
    }

    /// Parses an optional string field.
    pub fn string<T>(
        &self,
        name: &str,
        parse: impl FnOnce(Cow<'_, str>) -> Result<T, Invalid>,
    ) -> Result<Option<T>, ApiError> {
        self.value(name).map(|value| string(value).and_then(parse)).transpose().map_err(ApiError::invalid_value(name))
    }

    pub fn required_string<T>(
        &self,
        name: &str,
        parse: impl FnOnce(Cow<'_, str>) -> Result<T, Invalid>,
    ) -> Result<T, ApiError> {
        self.string(name, parse)?.ok_or_else(|| missing(name))
    }

    /// Parses a required int64 field.
    pub fn required_integer(&self, name: &str) -> Result<i64, ApiError> {
        let value = self.value(name).ok_or_else(|| missing(name))?;
        integer(value).map_err(ApiError::invalid_value(name))
    }

    fn value(&self, name: &str) -> Option<&'b str> {
        let position = self.names.iter().position(|known| *known == name);
        self.values[position.expect("only declared fields are parsed")]
    }
}

fn missing(name: &str) -> ApiError {
    ApiError::new(Code::MissingField, format!("The field `{name}` is required."))
}

/// Reads an object, and passes the text of each key and its value. Keys are not parsed, because one with a lone surrogate is
/// valid JSON.
pub fn read_object<'t, R: Read<'t>>(
    mut json: serde_json::Deserializer<R>,
    each: impl FnMut(&'t str, &'t str),
) -> serde_json::Result<()> {
    json.deserialize_map(Object(each)).and_then(|()| json.end())
}

struct Object<F>(F);

impl<'t, F: FnMut(&'t str, &'t str)> Visitor<'t> for Object<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(mut self, mut object: A) -> Result<(), A::Error> {
        while let Some((key, value)) = object.next_entry::<&RawValue, &RawValue>()? {
            (self.0)(key.get(), value.get());
        }
        Ok(())
    }
}

/// Parses the text of a string.
pub fn string(value: &str) -> Result<Cow<'_, str>, Invalid> {
    let Some(text) = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) else {
        return Err(Invalid(format!("must be a string, not {}", kind(value))));
    };
    if !text.contains('\\') {
        return Ok(Cow::Borrowed(text));
    }
    // The text is valid JSON, so only a lone surrogate can fail.
    String::deserialize(&mut serde_json::Deserializer::from_str(value))
        .map(Cow::Owned)
        .map_err(|_| Invalid("has an escape that is not a Unicode character (a lone surrogate)".into()))
}

fn integer(value: &str) -> Result<i64, Invalid> {
    if !value.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return Err(Invalid(format!("must be an integer, not {}", kind(value))));
    }
    let range = || format!("must be an integer from {} to {}", i64::MIN, i64::MAX);
    if value.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit()) {
        return value.parse().map_err(|_| Invalid(range()));
    }
    // With a point or an exponent: `3.0` and `3e0` are 3.
    match value.parse::<f64>() {
        Ok(number) if number.abs() >= EXACT => {
            Err(Invalid(format!("{}, and from 2^53 one without point and exponent", range())))
        }
        Ok(number) if number.fract() == 0.0 => Ok(number as i64),
        _ => Err(Invalid("must be an integer, not a number with a fraction".into())),
    }
}

/// Returns the type of a JSON value, by its first character.
fn kind(value: &str) -> &'static str {
    match value.as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_integers_in_any_notation() {
        for (text, value) in [
            ("3.0", 3),
            ("3e0", 3),
            ("30E-1", 3),
            ("0.3e1", 3),
            ("-3.000", -3),
            ("-0", 0),
            ("-0.0e999999999999999999999", 0),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
            ("9007199254740991.0", (1 << 53) - 1),
            ("9.007199254740991e15", (1 << 53) - 1),
            ("0.000001e+6", 1),
        ] {
            assert_eq!(integer(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn fractions_and_numbers_out_of_range_are_rejected() {
        for text in [
            "3.5", "1e-1", "1e999", "9007199254740992.0", "9007199254740993.0", "1e16", "9223372036854775808",
            "18446744073709551616", "1e99999999999999999999",
        ] {
            assert!(integer(text).is_err(), "{text}");
        }
    }

    #[test]
    fn errors_name_the_type_of_the_value() {
        for (text, name) in [
            ("\"3\"", "a string"),
            ("{}", "an object"),
            ("[]", "an array"),
            ("true", "a boolean"),
            ("false", "a boolean"),
            ("null", "null"),
        ] {
            assert_eq!(integer(text), Err(Invalid(format!("must be an integer, not {name}"))));
        }
    }

    #[test]
    fn whole_body_is_validated_before_its_fields() {
        let code = |text: &str| {
            Fields::parse(text, ["name"]).err().map(|error| {
                serde_json::from_slice::<serde_json::Value>(&error.body()).unwrap()["code"].as_str().unwrap().to_owned()
            })
        };
        for text in [
            "", "{", "[]", "3", "null", "\u{feff}{}", "{\"name\":3,", "{}{}", "{\"name\":1,\"n\\u0061me\":2}",
            "{'name':1}", "{\"name\":01}", "{\"a\tb\":1,\"name\":1}", "{\"name\u{0}\":1}", "{\"other\":{\"a\nb\":1}}",
            "{\"name\":\"a\nb\"}", "{\"a\\xb\":1}",
        ] {
            assert_eq!(code(text).as_deref(), Some("invalid_json"), "{text}");
        }
        let mark = Fields::parse("\u{feff}{}", ["name"]).err().unwrap();
        assert!(String::from_utf8_lossy(&mark.body()).contains("begins with a byte order mark"));
        let deep = format!("{{\"other\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        for text in ["{}", " {\"name\":1e999} ", "{\"\\ud800\":1,\"other\":\"\\ud800\",\"other\":2}", deep.as_str()] {
            assert_eq!(code(text), None, "{}", &text[..text.len().min(40)]);
        }
    }
}
