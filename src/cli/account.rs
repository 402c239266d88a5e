//! `petstore account …`

use std::io::{BufRead, stdin};

use clap::{Args, Subcommand};

use super::{Create, Failure, Outcome, print, with_store};
use crate::config::Common;
use crate::domain::account::{HashingMemory, NewPassword};
use crate::domain::{Clock, Email, Secret};

#[derive(Subcommand, Debug)]
pub enum Account {
    Create(CreateAccount),
}

/// Make an account
///
/// Without a password it is an account that only the command line can use.
#[derive(Args, Debug)]
pub struct CreateAccount {
    /// The e-mail address that names the account
    #[arg(value_parser = Email::parse)]
    email: Email,
    /// Read the account's password (12 to 128 characters) from the first line of stdin
    #[arg(long)]
    password_stdin: bool,
    #[command(flatten)]
    common: Common,
}

impl Account {
    pub fn run(self) -> Outcome {
        let Self::Create(command) = self;
        let password = command.password_stdin.then(read_password).transpose()?;
        with_store(&command.common, Create::PRODUCTION, async |store| {
            let digest = password.map(|password| password.hash(&mut HashingMemory::default()));
            let email = command.email.as_str().to_owned();
            match store.create_account(command.email, digest, Clock::System.now()).await? {
                Some(_) => print(&format!("{email}\n")),
                None => Err(Failure(format!("there is an account {email} already"))),
            }
        })
    }
}

fn read_password() -> Result<NewPassword, Failure> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line).map_err(|error| Failure(format!("the password can't be read: {error}")))?;
    let password = line.trim_end_matches(['\n', '\r']);
    NewPassword::parse(Secret::new(password)).map_err(|invalid| Failure(format!("the password {invalid}")))
}
