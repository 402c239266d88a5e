use std::process::ExitCode;

fn main() -> ExitCode {
    petstore::cli::run(std::env::args_os())
}
