//! Replaces API keys in log lines, spans and recorded requests.

use std::borrow::Cow;

/// The text that replaces a secret.
pub const HIDDEN: &str = "[hidden]";

const PREFIX_LENGTH: usize = "pet_live_".len();

/// Replaces all of an API key but its prefix. Costs little if there is nothing that looks like one.
pub fn without_keys(text: &[u8]) -> Cow<'_, [u8]> {
    let begins_key = |part: &[u8]| part[0] == b'p' && matches!(part, b"pet_live_" | b"pet_test_");
    let (mut kept, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.windows(PREFIX_LENGTH).position(begins_key) {
        let (before, key) = rest.split_at(at + PREFIX_LENGTH);
        // Base62, and the underscore, so that a key after a part of another is hidden.
        let secret = key.iter().take_while(|value| value.is_ascii_alphanumeric() || **value == b'_').count();
        kept.extend_from_slice(before);
        kept.extend_from_slice(if secret > 0 { HIDDEN.as_bytes() } else { b"" });
        rest = &key[secret..];
    }
    if kept.is_empty() {
        return text.into();
    }
    kept.extend_from_slice(rest);
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "pet_test_0123456789abcdefghijABCDEFGHIJ01234567";

    #[test]
    fn text_loses_only_keys() {
        let shown = |text: &str| String::from_utf8(without_keys(text.as_bytes()).into_owned()).unwrap();
        let (live, line) =
            (KEY.replace("test", "live"), |key: &str| format!("{{\"path\":\"/{key}\",\"a\":\"{key} ü\"}}"));
        assert_eq!(shown(&line(KEY)), line("pet_test_[hidden]"));
        assert_eq!(shown(&line(&live)), line("pet_live_[hidden]"));
        assert_eq!(shown(&format!("pet_test_a{KEY}{live}")), "pet_test_[hidden]");
        for text in ["", "pet", "Keys begin with pet_live_ or pet_test_.", "petstore pet_other_1"] {
            assert_eq!(shown(text), text);
        }
        assert!(matches!(without_keys(b"{\"path\":\"/v1/pets\"}"), Cow::Borrowed(_)));
    }

    #[test]
    fn key_cut_off_anywhere_is_hidden() {
        for end in 0..=KEY.len() {
            let shown = without_keys(&KEY.as_bytes()[..end]);
            assert!(!shown.contains(&b'0'), "{end}");
        }
    }
}
