//! Passes inputs of libFuzzer to the parser that `PETSTORE_PARSER` names: see scripts/fuzz.
#![no_main]

use std::sync::LazyLock;

#[path = "../tests/promises/parsers.rs"]
mod parsers;

static PARSER: LazyLock<parsers::Parser> = LazyLock::new(|| {
    let name = std::env::var("PETSTORE_PARSER").expect("PETSTORE_PARSER is set by scripts/fuzz");
    parsers::ALL.iter().find(|(of, _)| *of == name).expect("scripts/fuzz knows the parsers").1
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    PARSER(input);
});
