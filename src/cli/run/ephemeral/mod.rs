//! `petstore ephemeral`

mod folder;
mod settings;
mod supervisor;

use std::collections::{BTreeMap, HashSet};
use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{self, ExitCode};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use tokio::sync::mpsc::UnboundedReceiver;

use super::quickstart::print_banner;
use super::serve::serve;
use crate::api::prefer::preferences::Preferences;
use crate::api::{Addresses, BaseUrl};
use crate::app;
use crate::cli::shop::first_animals::FirstAnimals;
use crate::cli::{Outcome, actor};
use crate::config::SecretParser;
use crate::domain::account::{NewPassword, PasswordDigest};
use crate::domain::api_key::{KeyName, NewKey};
use crate::domain::{AccountId, ApiKey, Deployment, Email, Invalid, NewAccount, Role};
use crate::runtime::clock::Clock;
use crate::store::sqlite::{DatabaseOptions, Options, Sqlite};
use crate::store::{PetSource, Store};
use crate::telemetry::LogLevel;
use folder::Folder;
use settings::TestSettings;
use supervisor::{Supervisor, watch_stdin};

const STAFF: &str = "staff@localhost";
const CUSTOMER: &str = "customer@localhost";

/// Run a staging store for one test run
///
/// Creates a store in a temporary folder, on free ports of the loopback, with an account of the staff, one of a customer, an
/// API key for each and 30 animals. Reads no configuration file and no environment variable of petstore. The folder is
/// removed at the end.
///
/// Without COMMAND, prints one line of JSON when the store is ready, and runs until SIGTERM, SIGINT, or, if stdin is a
/// pipe, until its other end is closed.
///
/// With COMMAND, runs it with STORE_URL, MESSAGES_URL, OPS_URL, CONSOLE_URL, STORE_API_KEY, STORE_CUSTOMER_API_KEY,
/// STORE_EMAIL, STORE_PASSWORD and STORE_DATA_DIR in its environment, and exits with its status.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  petstore ephemeral -- pytest
  petstore ephemeral --empty -- sh -c 'curl -s \"$STORE_URL/pets\" -H \"Authorization: Bearer $STORE_API_KEY\"'
  petstore ephemeral --prefer 'flaky=code=503, rate=0.1' -- sh -c 'echo \"$STORE_API_KEY_FLAKY\"'")]
pub struct Ephemeral {
    #[command(flatten)]
    animals: FirstAnimals,
    /// API key of the account of the staff, from `petstore key new` [default: a new one]
    #[arg(long, value_name = "KEY", value_parser = TEST_KEY)]
    key: Option<ApiKey>,
    /// API key of the customer, from `petstore key new` [default: a new one]
    #[arg(long, value_name = "KEY", value_parser = TEST_KEY)]
    customer_key: Option<ApiKey>,
    /// Another key of the staff, whose requests get these failures, as in the header `Prefer`: `keys.NAME` in the line,
    /// STORE_API_KEY_NAME for COMMAND; can be repeated
    #[arg(long, value_name = "NAME=PREFERENCES", value_parser = failing_key)]
    prefer: Vec<(String, String)>,
    #[command(flatten)]
    settings: TestSettings,
    /// Lowest level to log to stderr
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log_level: LogLevel,
    /// Command to run while the store runs
    #[arg(last = true, num_args = 1.., value_names = ["COMMAND", "ARGUMENT"])]
    command: Vec<OsString>,
}

/// The credentials of a new store: the keys of the staff and of the customer, those that fail by their names, and the password.
type Access = (ApiKey, ApiKey, BTreeMap<String, ApiKey>, NewPassword);

/// The line that tells a test where the store is.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ready<'a> {
    store_url: &'a str,
    messages_url: &'a str,
    ops_url: String,
    console_url: String,
    key: &'a str,
    customer_key: &'a str,
    keys: BTreeMap<&'a str, &'a str>,
    email: &'a str,
    customer_email: &'a str,
    password: &'a str,
    data_dir: &'a Path,
    pid: u32,
}

impl Ready<'_> {
    /// Sets the environment variables of COMMAND.
    fn set_variables(&self, command: &mut process::Command) {
        let texts = [
            ("STORE_URL", self.store_url),
            ("MESSAGES_URL", self.messages_url),
            ("OPS_URL", &self.ops_url),
            ("CONSOLE_URL", &self.console_url),
            ("STORE_API_KEY", self.key),
            ("STORE_CUSTOMER_API_KEY", self.customer_key),
            ("STORE_EMAIL", self.email),
            ("STORE_PASSWORD", self.password),
        ];
        let keys = self.keys.iter().map(|(name, key)| (variable(name), key));
        command.envs(texts).envs(keys).env("STORE_DATA_DIR", self.data_dir).envs(no_proxy());
    }
}

impl Ephemeral {
    /// Rejects options that contradict each other. Returns an error message.
    pub fn check(&self) -> Result<(), String> {
        if let (Some(key), Some(customer_key)) = (&self.key, &self.customer_key)
            && key.hash() == customer_key.hash()
        {
            return Err("--key and --customer-key are the same key".into());
        }
        if self.command.is_empty() && env::args_os().next_back().is_some_and(|last| last == "--") {
            return Err("there is no COMMAND after --".into());
        }
        let mut variables = HashSet::new();
        match self.prefer.iter().map(|(name, _)| variable(name)).find(|name| !variables.insert(name.clone())) {
            Some(twice) => Err(format!("--prefer has two keys for {twice}")),
            None => Ok(()),
        }
    }

    /// Returns the exit status: that of COMMAND, if there is one.
    pub fn run(self) -> Outcome<ExitCode> {
        app::ignore_environment();
        // With an empty TMPDIR, the path is empty, which would mean the working directory.
        let temporary = Some(env::temp_dir()).filter(|folder| !folder.as_os_str().is_empty());
        let temporary = temporary.unwrap_or_else(|| "/tmp".into());
        let animals = self.animals.open(Some(&temporary))?;
        // From here on, no signal ends the process and leaves the folder.
        let (supervisor, stops) = Supervisor::start()?;
        if self.command.is_empty() {
            watch_stdin(Arc::clone(&supervisor))?;
        }
        folder::remove_abandoned(&temporary);
        // Declared before the service, because it is removed after the service has ended.
        let mut folder = None;
        let served = serve(async {
            let folder = folder.insert(Folder::create(&temporary)?);
            let database = DatabaseOptions { durable: false, ..DatabaseOptions::default() };
            let options = Options { create: Some(Deployment::Staging), database, ..Options::new(folder.data()) };
            let store = Arc::new(Store::Sqlite(Sqlite::open(&options)?));
            let started = self.start(&store, &options.data_dir, animals, &supervisor, stops).await;
            if started.is_err() {
                store.close().await;
            }
            started
        });
        let status = supervisor.finish(served.is_err());
        drop(folder);
        served.map(|()| if self.command.is_empty() { ExitCode::SUCCESS } else { status })
    }

    /// Fills the store and starts the service. Then prints the line or starts COMMAND.
    async fn start(
        &self,
        store: &Arc<Store>,
        data_dir: &Path,
        animals: PetSource,
        supervisor: &Arc<Supervisor>,
        stops: UnboundedReceiver<()>,
    ) -> Outcome<app::Ready> {
        let (key, customer_key, keys, password) = self.fill(store, animals).await?;
        let ready = async |addresses: &Addresses, operations: Option<SocketAddr>| {
            let operations = operations.expect("an ephemeral store opens all listeners");
            let ready = Ready {
                store_url: addresses.base_url.as_str(),
                messages_url: addresses.messages_base_url.as_str(),
                ops_url: BaseUrl::of_bound(&addresses.scheme, operations).root().to_owned(),
                console_url: format!("{}/", addresses.base_url.root()),
                key: key.expose(),
                customer_key: customer_key.expose(),
                keys: keys.iter().map(|(name, key)| (&**name, key.expose())).collect(),
                email: STAFF,
                customer_email: CUSTOMER,
                password: password.expose(),
                data_dir,
                pid: process::id(),
            };
            let Some((program, arguments)) = self.command.split_first() else {
                let line = serde_json::to_string(&ready)? + "\n";
                let printed = print_banner(move || {
                    let written = io::stdout().write_all(line.as_bytes());
                    Ok(written.map_err(|error| format!("cannot print the addresses: {error}"))?)
                });
                return printed.await;
            };
            let mut command = process::Command::new(program);
            ready.set_variables(&mut command);
            supervisor.run(command.args(arguments));
            Ok(())
        };
        app::start(&self.settings.0, Arc::clone(store), stops, ready).await
    }

    /// Adds the animals, two accounts with the same password, and their keys.
    async fn fill(&self, store: &Store, animals: PetSource) -> Outcome<Access> {
        let password = NewPassword::generate();
        let hashed = password.clone();
        // Hashing takes longer than everything else.
        let hash = tokio::task::spawn_blocking(move || hashed.hash());
        store.import_pets(animals).await?;
        let digest = hash.await?;
        let staff = new_account(store, STAFF, Role::Staff, &digest).await?;
        let customer = new_account(store, CUSTOMER, Role::Customer, &digest).await?;
        let key = add_key(store, staff, self.key.clone(), "ephemeral", None).await?;
        let customer_key = add_key(store, customer, self.customer_key.clone(), "ephemeral", None).await?;
        let mut keys = BTreeMap::new();
        for (name, prefer) in &self.prefer {
            let key = add_key(store, staff, None, name, Some(prefer.clone())).await?;
            keys.insert(name.clone(), key);
        }
        Ok((key, customer_key, keys, password))
    }
}

/// Returns the variable of a key that fails. Names that differ in case have the same one.
fn variable(name: &str) -> String {
    format!("STORE_API_KEY_{}", name.to_uppercase())
}

/// Returns variables by which COMMAND's requests to the store bypass a proxy. `*` stands for all hosts only if it is alone.
fn no_proxy() -> [(&'static str, OsString); 2] {
    let names = ["no_proxy", "NO_PROXY"];
    let mut hosts = names.iter().filter_map(env::var_os).find(|hosts| !hosts.is_empty()).unwrap_or_default();
    if hosts != "*" {
        hosts.push(if hosts.is_empty() { "127.0.0.1,::1,localhost" } else { ",127.0.0.1,::1,localhost" });
    }
    names.map(|name| (name, hosts.clone()))
}

async fn new_account(store: &Store, email: &str, role: Role, password: &PasswordDigest) -> Outcome<AccountId> {
    let new = NewAccount { email: Email::parse(email)?, password: Some(password.clone()), role };
    let created = store.create_account(new, actor()).await?;
    Ok(created.ok_or_else(|| format!("the account {email} exists"))?)
}

/// Stores a key, or a new one if none was chosen.
async fn add_key(
    store: &Store,
    account: AccountId,
    chosen: Option<ApiKey>,
    name: &str,
    prefer: Option<String>,
) -> Outcome<ApiKey> {
    let key = chosen.unwrap_or_else(|| ApiKey::generate(Deployment::Staging));
    let new = NewKey::of(&key, account, KeyName::parse(name.into())?, Clock::System.now(), None);
    store.create_key(NewKey { prefer, ..new }, actor()).await?;
    Ok(key)
}

/// Parser of a chosen key. Its errors do not quote it.
const TEST_KEY: SecretParser<ApiKey> = SecretParser { name: "API key", parse: test_key };

fn test_key(text: &str) -> Result<ApiKey, Invalid> {
    let invalid = || Invalid("is not a key of a staging store with a right checksum: see `petstore key new`".into());
    ApiKey::parse(text, Deployment::Staging).ok_or_else(invalid)
}

/// Parses `NAME=PREFERENCES`. The name is also part of an environment variable's.
fn failing_key(text: &str) -> Result<(String, String), Invalid> {
    let (name, prefer) = text.split_once('=').unwrap_or((text, ""));
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(Invalid("it must be NAME=PREFERENCES, and NAME letters, digits and underscores".into()));
    }
    Ok((name.to_owned(), Preferences::for_key(prefer, Deployment::Staging, Clock::System.now())?))
}
