//! `petstore ephemeral`

mod folder;
mod hang_up;
mod supervisor;

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{self, ExitCode};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use tokio::sync::mpsc::UnboundedReceiver;

use super::quickstart::print_banner;
use super::serve::serve;
use crate::app::{self, Started};
use crate::cli::shop::first_animals::FirstAnimals;
use crate::cli::{Failure, actor, stdout};
use crate::config::{Addresses, BaseUrl, ServiceSettings};
use crate::domain::account::{HashingMemory, NewPassword, PasswordDigest};
use crate::domain::api_key::{KeyName, NewKey};
use crate::domain::{ApiKey, Deployment, Email, NewAccount, Role};
use crate::runtime::clock::Clock;
use crate::store::sqlite::{Options, Sqlite};
use crate::store::{PetSource, Store};
use crate::telemetry::LogLevel;
use folder::Folder;
use supervisor::Supervisor;

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
/// With COMMAND, runs it with STORE_URL, MESSAGES_URL, STORE_API_KEY and STORE_CUSTOMER_API_KEY in its environment, and
/// exits with its status.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  petstore ephemeral -- pytest
  petstore ephemeral --empty -- sh -c 'curl -s \"$STORE_URL/pets\" -H \"Authorization: Bearer $STORE_API_KEY\"'")]
pub struct Ephemeral {
    #[command(flatten)]
    animals: FirstAnimals,
    /// Lowest level to log to stderr
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log_level: LogLevel,
    /// Command to run while the store runs
    #[arg(last = true, num_args = 1.., value_names = ["COMMAND", "ARGUMENT"])]
    command: Vec<OsString>,
}

struct Access {
    key: ApiKey,
    customer_key: ApiKey,
    password: NewPassword,
}

/// The line that tells a test where the store is.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ready<'a> {
    store_url: &'a str,
    messages_url: &'a str,
    ops_url: Option<String>,
    console_url: String,
    key: &'a str,
    customer_key: &'a str,
    email: &'a str,
    customer_email: &'a str,
    password: &'a str,
    pid: u32,
}

impl Ephemeral {
    /// Returns the exit status: that of COMMAND, if there is one.
    pub fn run(self) -> Result<ExitCode, Failure> {
        app::ignore_environment();
        let temporary = env::temp_dir();
        let animals = self.animals.open(Some(&temporary))?;
        // From here on, no signal ends the process and leaves the folder.
        let (supervisor, stops) = Supervisor::start()?;
        if self.command.is_empty() {
            hang_up::watch(Arc::clone(&supervisor))?;
        }
        folder::remove_abandoned(&temporary);
        // Declared before the service, because it is removed after the service has ended.
        let mut folder = None;
        let served = serve(async {
            let folder = folder.insert(Folder::create(&temporary)?);
            let options = Options { durable: false, create: Some(Deployment::Staging), ..Options::new(folder.data()) };
            let store = Arc::new(Store::Sqlite(Sqlite::open(&options)?));
            let started = self.start(&store, animals, &supervisor, stops).await;
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
        animals: PetSource,
        supervisor: &Arc<Supervisor>,
        stops: UnboundedReceiver<()>,
    ) -> Result<Started, Failure> {
        let access = Access::create(store, animals).await?;
        let ready = async |addresses: &Addresses, operations: Option<SocketAddr>| {
            let Some((program, arguments)) = self.command.split_first() else {
                let ops_url = operations.map(|bound| BaseUrl::of_bound(&addresses.scheme, bound).root().to_owned());
                let line = serde_json::to_string(&access.ready(addresses, ops_url))? + "\n";
                let printed = print_banner(move || {
                    stdout()?
                        .write_all(line.as_bytes())
                        .map_err(|error| Failure(format!("cannot print the addresses: {error}")))
                });
                return printed.await.map_err(|Failure(why)| why.into());
            };
            let mut command = process::Command::new(program);
            supervisor.run(
                command
                    .args(arguments)
                    .envs([
                        ("STORE_URL", addresses.base_url.as_str()),
                        ("MESSAGES_URL", addresses.messages_base_url.as_str()),
                        ("STORE_API_KEY", access.key.expose()),
                        ("STORE_CUSTOMER_API_KEY", access.customer_key.expose()),
                    ])
                    .envs(no_proxy()),
            );
            Ok(())
        };
        let started = app::start(&ServiceSettings::on_free_ports(), Arc::clone(store), ready).await?;
        Ok(started.stopped_by(stops))
    }
}

/// Returns variables by which COMMAND's requests to the store bypass a proxy. `*` stands for all hosts only if it is alone.
fn no_proxy() -> [(&'static str, OsString); 2] {
    let names = ["no_proxy", "NO_PROXY"];
    let mut hosts = names.iter().filter_map(env::var_os).find(|hosts| !hosts.is_empty()).unwrap_or_default();
    if hosts != "*" {
        hosts.push(if hosts.is_empty() { "127.0.0.1,localhost" } else { ",127.0.0.1,localhost" });
    }
    names.map(|name| (name, hosts.clone()))
}

impl Access {
    /// Adds the animals, two accounts with the same password, and a key for each.
    async fn create(store: &Store, animals: PetSource) -> Result<Self, Failure> {
        let password = NewPassword::generate();
        let hashed = password.clone();
        // Hashing takes longer than everything else.
        let hash = tokio::task::spawn_blocking(move || hashed.hash(&mut HashingMemory::default()));
        store.import_pets(animals).await?;
        let digest = hash.await??;
        let key = new_account(store, STAFF, Role::Staff, &digest).await?;
        let customer_key = new_account(store, CUSTOMER, Role::Customer, &digest).await?;
        Ok(Self { key, customer_key, password })
    }

    fn ready<'a>(&'a self, addresses: &'a Addresses, ops_url: Option<String>) -> Ready<'a> {
        Ready {
            store_url: addresses.base_url.as_str(),
            messages_url: addresses.messages_base_url.as_str(),
            ops_url,
            console_url: format!("{}/", addresses.base_url.root()),
            key: self.key.expose(),
            customer_key: self.customer_key.expose(),
            email: STAFF,
            customer_email: CUSTOMER,
            password: self.password.expose(),
            pid: process::id(),
        }
    }
}

/// Creates an account and returns a key for it.
async fn new_account(store: &Store, email: &str, role: Role, password: &PasswordDigest) -> Result<ApiKey, Failure> {
    let now = Clock::System.now();
    let new = NewAccount { email: Email::parse(email)?, password: Some(password.clone()), role, now };
    let created = store.create_account(new, actor()).await?;
    let account = created.ok_or_else(|| Failure(format!("the account {email} exists")))?;
    let key = ApiKey::generate(store.deployment());
    let new = NewKey::of(&key, account, KeyName::parse("ephemeral".into())?, now, None);
    store.create_key(new, actor()).await?;
    Ok(key)
}
