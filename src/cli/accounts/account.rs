//! `petstore account`

use std::io::{BufRead, Write, stdin, stdout};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tracing::Level;

use crate::cli::data::database::{find_account, no_account};
use crate::cli::terminal::confirm::confirm;
use crate::cli::terminal::table::{Listed, print_list, strip_bidi};
use crate::cli::{Create, Failure, Outcome, actor, print, tell, with_store};
use crate::config::{Common, ServiceSettings, one_of};
use crate::domain::account::{LINK_LIFETIME, NewPassword};
use crate::domain::{Account as AccountRecord, ApiKey, Email, NewAccount, Role, Secret};
use crate::runtime::clock::Clock;

#[derive(Subcommand, Debug)]
pub enum Account {
    Create(CreateAccount),
    List(ListAccounts),
    SetPassword(SetPassword),
    SetRole(SetRole),
    /// Suspend an account until it is resumed
    ///
    /// Its console sessions end, and it cannot sign in. Its keys get a 401 response: running services apply it within a
    /// second. Its orders stay as they are, and its messages are delivered.
    Suspend(OneAccount),
    /// Resume a suspended account
    ///
    /// Its password and its keys work again, within a second.
    Resume(OneAccount),
    ResetLink(Box<ResetLink>),
    SetEmail(SetEmail),
    /// Print what the store knows of an account, as JSON
    ///
    /// The account, the times of its sessions, its keys, orders and messages, and the rows of the audit that name it, without
    /// the addresses of others. Of passwords, keys, sessions and `Idempotency-Key`s, the store has only digests, which are not
    /// printed. If the exit status is not 0, the output is not complete.
    Export(OneAccount),
    Delete(DeleteAccount),
    Erase(EraseAccount),
}

#[derive(Args, Debug)]
pub struct OneAccount {
    /// E-mail address of the account
    #[arg(value_parser = Email::parse)]
    pub(super) email: Email,
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
    /// Ask for a new password at the next sign-in
    #[arg(long)]
    temporary: bool,
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

/// Print a link by which the owner of an account chooses a password
///
/// It works once, within an hour, and ends the account's sessions. It cannot be shown again, because only its hash is stored.
/// Its address is that of a service with the same settings.
#[derive(Args, Debug)]
pub struct ResetLink {
    #[command(flatten)]
    account: OneAccount,
    #[command(flatten)]
    service: ServiceSettings,
}

/// Change the address of an account
///
/// Its password, keys and orders stay. The audit names it by the new address, too; the row of this change has both.
#[derive(Args, Debug)]
pub struct SetEmail {
    /// E-mail address of the account
    #[arg(value_name = "OLD", value_parser = Email::parse)]
    old: Email,
    /// New e-mail address of the account
    #[arg(value_name = "NEW", value_parser = new_email)]
    new: Email,
}

/// Delete an account, revoke its keys and cancel its open orders
///
/// Messages and animals of the account are kept. On a terminal, asks for confirmation; elsewhere, needs --yes.
#[derive(Args, Debug)]
pub struct DeleteAccount {
    #[command(flatten)]
    account: OneAccount,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

/// Erase an account and what the store knows of its owner
///
/// Deletes the account as `petstore account delete` does, and its messages, keys and stored responses, and replaces its
/// address in the audit by a pseudonym. Its orders stay, under the number of the account. Backups and logs keep what they
/// have. Fails if some of its messages are not sent. On a terminal, asks for confirmation; elsewhere, needs --yes.
#[derive(Args, Debug)]
pub struct EraseAccount {
    #[command(flatten)]
    account: OneAccount,
    /// Delete messages that are not sent, too
    #[arg(long)]
    discard_messages: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl Account {
    pub fn run(self, common: &Common) -> Outcome {
        match self {
            Self::Create(command) => command.run(common),
            Self::List(command) => command.run(common),
            Self::SetPassword(command) => command.run(common),
            Self::SetRole(command) => command.run(common),
            Self::Suspend(account) => account.set_suspended(common, true),
            Self::Resume(account) => account.set_suspended(common, false),
            Self::ResetLink(command) => command.run(common),
            Self::SetEmail(command) => command.run(common),
            Self::Export(account) => account.export(common),
            Self::Delete(command) => command.run(common),
            Self::Erase(command) => command.run(common),
        }
    }
}

impl CreateAccount {
    fn run(self, common: &Common) -> Outcome {
        let password = self.password_stdin.then(read_password).transpose()?;
        with_store(common, Create::PRODUCTION, async |store| {
            let email = self.email.as_str().to_owned();
            let digest = password.as_ref().map(NewPassword::hash);
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
            let changed = store.set_password(account.id, password.hash(), self.temporary, actor()).await?;
            check_found(changed, &self.email)?;
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
            check_found(store.set_role(account.id, self.role, actor()).await?, &self.email)
        })
    }
}

impl OneAccount {
    fn set_suspended(self, common: &Common, suspended: bool) -> Outcome {
        with_store(common, Create::Never, async |store| {
            let account = find_account(&store, &self.email).await?;
            check_found(store.set_suspended(account.id, suspended, actor()).await?, &self.email)
        })
    }
}

impl DeleteAccount {
    fn run(self, common: &Common) -> Outcome {
        with_store(common, Create::Never, async |store| {
            let account = find_account(&store, &self.account.email).await?;
            if !self.yes {
                let email = strip_bidi(account.email.as_str());
                let what = format!("{email}, revoke its keys and cancel its open orders");
                confirm(&format!("Delete {what}?"), &format!("this would delete {what}"))?;
            }
            check_found(store.delete_account(account.id, None, actor()).await?, &account.email)
        })
    }
}

impl ResetLink {
    fn run(self, common: &Common) -> Outcome {
        let Self { account: OneAccount { email }, service } = self;
        let addresses = service.addresses(service.listen, service.messages_listen);
        with_store(common, Create::Never, async |store| {
            let (account, token) = (find_account(&store, &email).await?, ApiKey::generate(store.deployment()));
            let until = Clock::System.now().plus(LINK_LIFETIME);
            check_found(store.create_link(account.id, token.hash(), until, None, actor()).await?, &email)?;
            print(&format!("{}/password/{}\n", addresses.base_url.root(), token.expose()))
        })
    }
}

impl SetEmail {
    fn run(self, common: &Common) -> Outcome {
        with_store(common, Create::Never, async |store| {
            let account = find_account(&store, &self.old).await?;
            if store.find_account(&self.new).await?.is_some_and(|found| found.id != account.id) {
                return Err(Failure(format!("account {} already exists", self.new.as_str())));
            }
            check_found(store.set_email(account.id, self.new, actor()).await?, &self.old)
        })
    }
}

impl EraseAccount {
    fn run(self, common: &Common) -> Outcome {
        with_store(common, Create::Never, async |store| {
            let account = find_account(&store, &self.account.email).await?;
            let email = strip_bidi(account.email.as_str());
            if !self.yes {
                let what = format!("{email}, its keys and its messages, and cancel its open orders");
                confirm(&format!("Erase {what}?"), &format!("this would erase {what}"))?;
            }
            let erased = store.erase_account(account.id, self.discard_messages, actor()).await?;
            check_found(erased.is_some(), &account.email)?;
            if erased == Some(false) {
                let why =
                    "some of its messages are not sent, and nothing was changed: add --discard-messages to delete them";
                return Err(Failure(why.into()));
            }
            let (id, pseudonym) = (account.id.0, account.id.pseudonym());
            let done =
                "its messages, keys, sessions and stored responses are deleted, and its open orders are cancelled";
            tell(
                Level::INFO,
                &format!("erased {email}: {done}. Its orders stay, of account {id}; the audit names it {pseudonym}"),
            );
            Ok(())
        })
    }
}

/// Fails if the account has been deleted meanwhile.
fn check_found(is_there: bool, email: &Email) -> Outcome {
    is_there.then_some(()).ok_or_else(|| no_account(email))
}

fn read_password() -> Result<NewPassword, Failure> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line).map_err(|error| Failure(format!("cannot read the password: {error}")))?;
    // Windows programs write a byte order mark at the start of a file.
    let password = line.trim_start_matches('\u{feff}').trim_end_matches(['\n', '\r']);
    NewPassword::parse(&Secret::new(password)).map_err(|invalid| Failure(format!("the password {invalid}")))
}

impl Listed for AccountRecord {
    const HEAD: &[&str] = &["ID", "EMAIL", "ROLE", "CREATED", "PASSWORD", "SUSPENDED"];

    const FIELDS: &[&str] = &["id", "email", "role", "createdAt", "hasPassword", "suspendedAt"];

    fn json(&self) -> Value {
        let Self { id, email, role, created_at, has_password, suspended_at } = self;
        json!({
            "id": id.0, "email": email.as_str(), "role": role.as_str(), "createdAt": created_at,
            "hasPassword": has_password, "suspendedAt": suspended_at
        })
    }
}
