//! Values that must never be printed, and random values from the operating system to make them of.

/// A string whose `Debug` output is `[hidden]`. It has no `Display`; [`Secret::expose`] is easy to search for.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[hidden]")
    }
}

pub const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

pub fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut random = [0; BYTES];
    getrandom::fill(&mut random).expect("the operating system has random bytes");
    random
}

/// Appends `length` characters of [`BASE62`].
pub(super) fn push_random(text: &mut String, length: usize) {
    let end = text.len() + length;
    while text.len() < end {
        // 248 is the largest multiple of 62 below 256. Using bytes from 248 up would favour the first characters.
        let fair = random::<32>().into_iter().filter(|byte| *byte < 248);
        let characters = fair.map(|byte| char::from(BASE62[usize::from(byte % 62)]));
        text.extend(characters.take(end - text.len()));
    }
}
