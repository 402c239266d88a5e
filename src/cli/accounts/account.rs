//! `petstore account`

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tracing::Level;

use crate::cli::data::database::{find_account, no_account, refuse_suspended};
use crate::cli::terminal::confirm::confirm;
use crate::cli::terminal::hidden_input::read_hidden;
use crate::cli::terminal::table::{Listed, print_list, strip_bidi};
use crate::cli::{Outcome, actor, print, print_secret, tell, with_store};
use crate::config::{Common, ServiceSettings, one_of};
use crate::domain::account::{LINK_LIFETIME, NewPassword};
use crate::domain::{Account as AccountRecord, ApiKey, Deployment, Email, Invalid, NewAccount, Role, Secret};
use crate::runtime::clock::Clock;
use crate::store::Store;

#[derive(Subcommand, Debug)]
pub enum Account {
    /// Create an account
    ///
    /// An account without a password cannot sign in to the console.
    #[command(after_long_help = "\
Examples:
  petstore account create ada@example.com
  petstore account create grace@example.com --role staff
  petstore account create ada@example.com --password-stdin < password.txt")]
    Create {
        /// E-mail address of the account
        #[arg(value_parser = new_email)]
        email: Email,
        /// Role of the account: a customer sees its own orders, staff see and change all
        #[arg(long, value_parser = one_of(&Role::ALL, Role::as_str), default_value = "customer")]
        role: Role,
        /// Read the account's password (12 to 128 characters) from the first line of stdin
        #[arg(long)]
        password_stdin: bool,
    },
    /// List accounts
    List {
        /// Print a JSON array of objects
        #[arg(long)]
        json: bool,
    },
    /// Set an account's password and end its console sessions
    ///
    /// Without --password-stdin, generates a password and prints it. It is not shown again.
    SetPassword {
        #[command(flatten)]
        account: OneAccount,
        /// Read the new password (12 to 128 characters) from the first line of stdin
        #[arg(long)]
        password_stdin: bool,
        /// Ask for a new password at the next sign-in
        #[arg(long)]
        temporary: bool,
    },
    /// Change the role of an account
    ///
    /// Running services apply it within a second.
    SetRole {
        #[command(flatten)]
        account: OneAccount,
        /// New role of the account
        #[arg(value_parser = one_of(&Role::ALL, Role::as_str))]
        role: Role,
    },
    /// Suspend an account until it is resumed
    ///
    /// Its console sessions and its link end, and it cannot sign in. Its keys get a 401 response: running services apply it
    /// within a second. Its orders stay as they are, and its messages are delivered.
    Suspend(OneAccount),
    /// Resume a suspended account
    ///
    /// Its password and its keys work again, within a second.
    Resume(OneAccount),
    /// Print a link by which the owner of an account chooses a password
    ///
    /// It works once, within an hour, and ends the account's sessions. It cannot be shown again, because only its hash is
    /// stored. Its address is that of a service with the same settings.
    ResetLink {
        #[command(flatten)]
        account: OneAccount,
        #[command(flatten)]
        service: Box<ServiceSettings>,
    },
    /// Change the address of an account
    ///
    /// Its password, keys and orders stay. The audit names it by the new address, too; the row of this change has both.
    SetEmail {
        /// E-mail address of the account
        #[arg(value_name = "OLD", value_parser = Email::parse)]
        old: Email,
        /// New e-mail address of the account
        #[arg(value_name = "NEW", value_parser = new_email)]
        new: Email,
    },
    /// Print what the store knows of an account, as JSON
    ///
    /// The account, the times of its sessions, its keys, orders and messages, and the rows of the audit that name it, without
    /// the addresses of others. Of passwords, keys, sessions and `Idempotency-Key`s, the store has only digests, which are not
    /// printed. If the exit status is not 0, the output is not complete.
    Export(OneAccount),
    /// Delete an account, revoke its keys and cancel its open orders
    ///
    /// Messages and animals of the account are kept. On a terminal, asks for confirmation; elsewhere, needs --yes.
    Delete {
        #[command(flatten)]
        account: OneAccount,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Erase an account and what the store knows of its owner
    ///
    /// Deletes the account as `petstore account delete` does, and its messages, keys and stored responses, and replaces its
    /// address in the audit by a pseudonym. Its orders stay, under the number of the account. Backups and logs keep what they
    /// have. Fails if some of its messages are not sent. On a terminal, asks for confirmation; elsewhere, needs --yes.
    Erase {
        #[command(flatten)]
        account: OneAccount,
        /// Delete messages that are not sent, too
        #[arg(long)]
        discard_messages: bool,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Args, Debug)]
pub struct OneAccount {
    /// E-mail address of the account
    #[arg(value_parser = Email::parse_entered)]
    pub(super) email: Email,
}

/// Parses the address of a new account. Rejects a misplaced URL, because its password would be stored, too.
fn new_email(address: &str) -> Result<Email, Invalid> {
    if address.contains("://") {
        return Err(Invalid("must be an e-mail address, for instance ada@example.com, not a URL".into()));
    }
    Email::parse_entered(address)
}

impl Account {
    pub fn run(self, common: &Common) -> Outcome {
        match self {
            Self::Create { email, role, password_stdin } => create(common, email, role, password_stdin),
            Self::List { json } => {
                with_store(common, None, async |store| print_list(&store.list_accounts().await?, json))
            }
            Self::SetPassword { account, password_stdin, temporary } => {
                account.set_password(common, password_stdin, temporary)
            }
            Self::SetRole { account, role } => {
                account.change(common, async |store, account| Ok(store.set_role(account.id, role, actor()).await?))
            }
            Self::Suspend(account) => account.set_suspended(common, true),
            Self::Resume(account) => account.set_suspended(common, false),
            Self::ResetLink { account, service } => account.print_link(common, &service),
            Self::SetEmail { old, new } => set_email(common, old, new),
            Self::Export(account) => account.export(common),
            Self::Delete { account, yes } => account.delete(common, yes),
            Self::Erase { account, discard_messages, yes } => account.erase(common, discard_messages, yes),
        }
    }
}

fn create(common: &Common, email: Email, role: Role, password_stdin: bool) -> Outcome {
    let password = password_stdin.then(read_password).transpose()?;
    with_store(common, Some(Deployment::Production), async |store| {
        let name = email.as_str().to_owned();
        let digest = password.as_ref().map(NewPassword::hash);
        let new = NewAccount { role, ..NewAccount::customer(email, digest) };
        match store.create_account(new, actor()).await? {
            Some(_) => print(&format!("{name}\n")),
            None => Err(format!("account {name} already exists").into()),
        }
    })
}

fn set_email(common: &Common, old: Email, new: Email) -> Outcome {
    OneAccount { email: old }.change(common, async |store, account| {
        if store.find_account(&new).await?.is_some_and(|found| found.id != account.id) {
            return Err(format!("account {} already exists", new.as_str()).into());
        }
        Ok(store.set_email(account.id, new, actor()).await?)
    })
}

impl OneAccount {
    /// Changes the account. `change` returns false if it has been deleted meanwhile.
    fn change(self, common: &Common, change: impl AsyncFnOnce(&Store, &AccountRecord) -> Outcome<bool>) -> Outcome {
        with_store(common, None, async |store| {
            let account = find_account(store, &self.email).await?;
            if change(store, &account).await? { Ok(()) } else { Err(no_account(&self.email).into()) }
        })
    }

    fn set_password(self, common: &Common, password_stdin: bool, temporary: bool) -> Outcome {
        let given = password_stdin.then(read_password).transpose()?;
        self.change(common, async |store, account| {
            let is_generated = given.is_none();
            let password = given.unwrap_or_else(NewPassword::generate);
            let is_set = store.set_password(account.id, password.hash(), temporary, actor()).await?;
            if is_set && is_generated {
                print_secret(password.expose(), "the password was changed", "set another one")?;
            }
            Ok(is_set)
        })
    }

    fn set_suspended(self, common: &Common, suspended: bool) -> Outcome {
        self.change(common, async |store, account| Ok(store.set_suspended(account.id, suspended, actor()).await?))
    }

    fn print_link(self, common: &Common, service: &ServiceSettings) -> Outcome {
        let addresses = service.addresses(service.listen, service.messages_listen);
        self.change(common, async |store, account| {
            refuse_suspended(account)?;
            let (token, until) = (ApiKey::generate(store.deployment()), Clock::System.now().plus(LINK_LIFETIME));
            let is_created = store.create_link(account.id, token.hash(), until, None, actor()).await?;
            if is_created {
                let link = format!("{}/password/{}", addresses.base_url.root(), token.expose());
                print_secret(&link, "the link was made", "make another one")?;
            }
            Ok(is_created)
        })
    }

    fn delete(self, common: &Common, yes: bool) -> Outcome {
        self.change(common, async |store, account| {
            let email = strip_bidi(account.email.as_str());
            let what = format!("{email}, revoke its keys and cancel its open orders");
            confirm(yes, &format!("Delete {what}?"), &format!("this would delete {what}"))?;
            Ok(store.delete_account(account.id, None, actor()).await?)
        })
    }

    fn erase(self, common: &Common, discard_messages: bool, yes: bool) -> Outcome {
        self.change(common, async |store, account| {
            let email = strip_bidi(account.email.as_str());
            let what = format!("{email}, its keys and its messages, and cancel its open orders");
            confirm(yes, &format!("Erase {what}?"), &format!("this would erase {what}"))?;
            match store.erase_account(account.id, discard_messages, actor()).await? {
                None => Ok(false),
                Some(false) => {
                    let why = "some of its messages are not sent, and nothing was changed: add --discard-messages to \
                               delete them";
                    Err(why.into())
                }
                Some(true) => {
                    let (id, pseudonym) = (account.id.0, account.id.pseudonym());
                    let done = "its messages, keys, sessions and stored responses are deleted, and its open orders are \
                                cancelled";
                    let kept = format!("Its orders stay, of account {id}; the audit names it {pseudonym}");
                    tell(Level::INFO, &format!("erased {email}: {done}. {kept}"));
                    Ok(true)
                }
            }
        })
    }
}

fn read_password() -> Outcome<NewPassword> {
    let line = read_hidden("Password: ").map_err(|error| format!("cannot read the password: {error}"))?;
    // Windows programs write a byte order mark at the start of a file.
    let password = line.trim_start_matches('\u{feff}').trim_end_matches(['\n', '\r']);
    NewPassword::parse(&Secret::new(password)).map_err(|invalid| format!("the password {invalid}").into())
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
