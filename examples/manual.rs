//! Writes the manual pages, one for each command, into a folder: `cargo run --example manual -- FOLDER`. `scripts/install`
//! calls it. An example, so that the program itself is not built with what writes them.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder =
        std::env::args_os().nth(1).map(PathBuf::from).ok_or_else(|| std::io::Error::other("no folder given"))?;
    clap_mangen::generate_to(petstore::cli::command(), folder)
}
