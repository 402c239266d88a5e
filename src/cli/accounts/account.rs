//! `petstore account`

use std::collections::TryReserveError;
use std::io::{BufRead, Write, stdin, stdout};

use clap::Args;
use serde_json::{Value, json};

use crate::cli::accounts::personal_data::ExportAccount;
use crate::cli::data::database::{find_account, no_account};
use crate::cli::terminal::confirm::confirms;
use crate::cli::terminal::table::{Listed, print_list, strip_bidi};
use crate::cli::{Create, Failure, Outcome, actor, print, with_store};
use crate::config::{Common, one_of};
use crate::domain::account::{HashingMemory, NewPassword, PasswordDigest};
use crate::domain::{Account as AccountRecord, Email, NewAccount, Role, Secret};
use crate::runtime::clock::Clock;

subcommands! {
    pub enum Account {
        Create(CreateAccount),
        List(ListAccounts),
        SetPassword(SetPassword),
        SetRole(SetRole),
        Export(ExportAccount),
        Delete(DeleteAccount),
    }
}

/// Create an account
///
/// An account without a password cannot sign in to the console.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  petstore account create ada@example.com
  petstore account create grace@example.com --role staff
  petstore account create ada@example.com --password-stdin < password.txt")]
pub struct CreateAccount {
    /// E-mail address of the account
    #[arg(value_parser = new_email)]
    email: Email,
    /// Role of the account: a customer sees its own orders, staff see and change all
    #[arg(long, value_parser = one_of(&Role::ALL, Role::as_str), default_value = "customer")]
    role: Role,
    /// Read the account's password (12 to 128 characters) from the first line of stdin
    #[arg(long)]
    password_stdin: bool,
}

/// Parses the address of a new account. Rejects a misplaced URL, because its password would be stored, too.
fn new_email(address: &str) -> Result<Email, String> {
    if address.contains("://") {
        return Err("must be an e-mail address, for instance ada@example.com, not a URL".into());
    }
    Email::parse(address).map_err(|invalid| invalid.to_string())
}

/// List accounts
#[derive(Args, Debug)]
pub struct ListAccounts {
    /// Print a JSON array of objects
    #[arg(long)]
    json: bool,
}

/// Set an account's password and end its console sessions
///
/// Without --password-stdin, generates a password and prints it. It is not shown again.
#[derive(Args, Debug)]
pub struct SetPassword {
    /// E-mail address of the account
    #[arg(value_parser = Email::parse)]
    email: Email,
    /// Read the new password (12 to 128 characters) from the first line of stdin
    #[arg(long)]
    password_stdin: bool,
}

/// Change the role of an account
///
/// Running services apply it within a second.
#[derive(Args, Debug)]
pub struct SetRole {
    /// E-mail address of the account
    #[arg(value_parser = Email::parse)]
    email: Email,
    /// New role of the account
    #[arg(value_parser = one_of(&Role::ALL, Role::as_str))]
    role: Role,
}

/// Delete an account, revoke its keys and cancel its open orders
///
/// Messages and animals of the account are kept. On a terminal, asks for confirmation.
#[derive(Args, Debug)]
pub struct DeleteAccount {
    /// E-mail address of the account
    #[arg(value_parser = Email::parse)]
    email: Email,
}

impl CreateAccount {
    fn run(self, common: &Common) -> Outcome {
        let password = self.password_stdin.then(read_password).transpose()?;
        with_store(common, Create::PRODUCTION, async |store| {
            let email = self.email.as_str().to_owned();
            let digest = password.as_ref().map(digest).transpose()?;
            let new = NewAccount { role: self.role, ..NewAccount::customer(self.email, digest, Clock::System.now()) };
            match store.create_account(new, actor()).await? {
                Some(_) => print(&format!("{email}\n")),
                None => Err(Failure(format!("account {email} already exists"))),
            }
        })
    }
}

impl ListAccounts {
    fn run(self, common: &Common) -> Outcome {
        with_store(common, Create::Never, async |store| print_list(&store.list_accounts().await?, self.json))
    }
}

impl SetPassword {
    fn run(self, common: &Common) -> Outcome {
        let given = self.password_stdin.then(read_password).transpose()?;
        with_store(common, Create::Never, async |store| {
            let account = find_account(&store, &self.email).await?;
            let password = given.clone().unwrap_or_else(NewPassword::generate);
            if !store.set_password(account.id, digest(&password)?, actor()).await? {
                return Err(no_account(&self.email));
            }
            if given.is_some() {
                return Ok(());
            }
            writeln!(stdout(), "{}", password.expose()).map_err(|error| {
                Failure(format!("the password was changed, but cannot be shown: {error}; set another one"))
            })
        })
    }
}

impl SetRole {
    fn run(self, common: &Common) -> Outcome {
        with_store(common, Create::Never, async |store| {
            let account = find_account(&store, &self.email).await?;
            match store.set_role(account.id, self.role, actor()).await? {
                true => Ok(()),
                false => Err(no_account(&self.email)),
            }
        })
    }
}

impl DeleteAccount {
    fn run(self, common: &Common) -> Outcome {
        with_store(common, Create::Never, async |store| {
            let account = find_account(&store, &self.email).await?;
            let email = strip_bidi(account.email.as_str());
            if confirms(&format!("Delete {email}, revoke its keys and cancel its open orders?"))? == Some(false) {
                return Err(Failure("nothing was deleted".into()));
            }
            match store.delete_account(account.id, None, actor()).await? {
                true => Ok(()),
                false => Err(no_account(&self.email)),
            }
        })
    }
}

fn digest(password: &NewPassword) -> Result<PasswordDigest, TryReserveError> {
    password.hash(&mut HashingMemory::default())
}

fn read_password() -> Result<NewPassword, Failure> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line).map_err(|error| Failure(format!("cannot read the password: {error}")))?;
    // Windows programs write a byte order mark at the start of a file.
    let password = line.trim_start_matches('\u{feff}').trim_end_matches(['\n', '\r']);
    NewPassword::parse(&Secret::new(password)).map_err(|invalid| Failure(format!("the password {invalid}")))
}

impl Listed for AccountRecord {
    const HEAD: &[&str] = &["ID", "EMAIL", "ROLE", "CREATED", "PASSWORD"];

    const FIELDS: &[&str] = &["id", "email", "role", "createdAt", "hasPassword"];

    fn json(&self) -> Value {
        let Self { id, email, role, created_at, has_password } = self;
        let (email, role) = (email.as_str(), role.as_str());
        json!({ "id": id.0, "email": email, "role": role, "createdAt": created_at, "hasPassword": has_password })
    }
}
