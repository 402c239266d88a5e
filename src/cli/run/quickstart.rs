//! `petstore quickstart`

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{env, thread};

use askama::Template;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::serve::{Signals, open_for, serve};
use crate::api::{Addresses, BaseUrl};
use crate::app;
use crate::cli::data::database::{find_account, refuse_suspended};
use crate::cli::{Outcome, actor, print_open};
use crate::config::{Common, ServiceSettings};
use crate::console::shell_quoted;
use crate::domain::account::NewPassword;
use crate::domain::api_key::{KeyName, NewKey};
use crate::domain::{Account, AccountId, ApiKey, Deployment, Email, NewAccount, Role, sample_animals};
use crate::net::regular_file;
use crate::runtime::clock::Clock;
use crate::store::Store;
use crate::store::sqlite::{KEY_FILE, folder_of, make_folder};

const ACCOUNT: &str = "quickstart@localhost";
const PRODUCTION: &str = "this is a production database, to which quickstart would add an account, a key and animals: \
    run `petstore serve`, or confirm with --deployment production";
/// Shell command that extracts the id from a JSON list of one object.
const FIRST_ID: &str = r#"sed 's/.*"id":\([0-9]*\).*/\1/'"#;
/// Maximum time to wait until the banner is written to stdout and its password is stored.
const BANNER_TIMEOUT: Duration = Duration::from_secs(5);

pub fn run(service: &ServiceSettings, common: &Common) -> Outcome {
    serve(async {
        let signals = Signals::listen()?;
        let store = open_for(service, common, Deployment::Staging).await?;
        let file = common.data_dir.join(KEY_FILE);
        let kept = kept_key(&store, &file).await?;
        // Sample data in production needs confirmation, once.
        if store.deployment() == Deployment::Production && common.deployment.is_none() && kept.is_none() {
            store.close().await;
            return Err(PRODUCTION.into());
        }
        let account = account(&store).await?;
        let key = match kept {
            Some(key) => key,
            None => new_key(&store, account.id, &file).await?,
        };
        if store.count_pets().await? == 0 {
            store.import_pets(Box::new(sample_animals())).await?;
        }
        let of_store = Arc::clone(&store);
        let started = app::start(service, store, signals.into_stops(), async |addresses, operations| {
            let password = if account.has_password { None } else { Some(NewPassword::generate()) };
            let welcome = Welcome {
                addresses,
                operations: operations.map(|bound| BaseUrl::of_bound(&addresses.scheme, bound)),
                password: password.as_ref().map(NewPassword::expose),
                data_dir: common.database_url.is_none().then(|| quoted(&common.data_dir)),
                key: &key,
                curl: service.tls_cert.as_deref().map_or("curl".to_owned(), curl_with),
            };
            let text = welcome.to_string();
            let digest = password.as_ref().map(NewPassword::hash);
            let runtime = Handle::current();
            print_banner(move || {
                let is_shown = print_open(&text)?;
                // Set only now, because a password that was not shown would be lost.
                if let Some(digest) = digest.filter(|_| is_shown) {
                    runtime.block_on(of_store.set_password(account.id, digest, false, actor()))?;
                }
                Ok(())
            })
            .await
        });
        started.await
    })
}

/// Prints from a thread of its own, because writing to a stdout that nobody reads would block the service.
pub async fn print_banner(print: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    let (done, printed) = oneshot::channel();
    thread::Builder::new().name("banner".into()).spawn(move || done.send(print()))?;
    match tokio::time::timeout(BANNER_TIMEOUT, printed).await {
        Ok(outcome) => outcome?,
        Err(_) => {
            tracing::warn!("stdout is not read, serving without it");
            Ok(())
        }
    }
}

/// Returns the key of an earlier quickstart. `None` if there is none or it no longer works.
async fn kept_key(store: &Store, file: &Path) -> Outcome<Option<String>> {
    let Some(kept) = regular_file::read(file).ok().and_then(|kept| String::from_utf8(kept).ok()) else {
        return Ok(None);
    };
    let Some(hash) = ApiKey::hash_presented(kept.trim().as_bytes(), store.deployment()) else { return Ok(None) };
    let works = store.find_key(&hash).await?.is_some_and(|grant| !grant.is_revoked && grant.expires_at.is_none());
    Ok(works.then(|| kept.trim().to_owned()))
}

/// Returns the account `quickstart@localhost` and creates it if it does not exist. Fails if it is suspended.
async fn account(store: &Store) -> Outcome<Account> {
    let email = Email::parse(ACCOUNT)?;
    let new = NewAccount { role: Role::Staff, ..NewAccount::customer(email.clone(), None) };
    store.create_account(new, actor()).await?;
    let account = find_account(store, &email).await?;
    refuse_suspended(&account).map(|()| account)
}

async fn new_key(store: &Store, account: AccountId, file: &Path) -> Outcome<String> {
    let now = Clock::System.now();
    let key = ApiKey::generate(store.deployment());
    let name = KeyName::parse("quickstart".into())?;
    store.create_key(NewKey::of(&key, account, name, now, None), actor()).await?;
    // Does not exist yet with PostgreSQL.
    make_folder(folder_of(file))?;
    // Removed, because an existing file may be readable by other users and would keep its mode.
    let _ = fs::remove_file(file);
    let mut kept = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    writeln!(kept, "{}", key.expose())?;
    Ok(key.expose().to_owned())
}

/// The output of quickstart.
#[derive(Template)]
#[template(path = "quickstart.txt")]
struct Welcome<'a> {
    addresses: &'a Addresses,
    /// The address of the operations listener, if it is open.
    operations: Option<BaseUrl>,
    /// `None` if it was shown at the first start.
    password: Option<&'a str>,
    /// The option that makes another command use the same folder.
    data_dir: Option<String>,
    key: &'a str,
    curl: String,
}

impl Welcome<'_> {
    /// Shell command that finds the id of the first entry of a list. A fixed id may belong to an animal or an order used
    /// after an earlier start.
    fn first_id(&self, list: &str) -> String {
        let Self { addresses, curl, key, .. } = self;
        let store = addresses.base_url.as_str();
        format!("$({curl} -s '{store}{list}&limit=1' -H 'Authorization: Bearer {key}' | {FIRST_ID})")
    }
}

/// Returns the path of this program for a shell, because a program that cargo has built is not in `PATH`.
fn program() -> String {
    quoted(&env::current_exe().unwrap_or_else(|_| PathBuf::from("petstore")))
}

/// Returns a curl command that trusts `certificate` and works in any folder.
fn curl_with(certificate: &Path) -> String {
    let certificate = std::path::absolute(certificate).unwrap_or_else(|_| certificate.to_owned());
    format!("curl --cacert {}", quoted(&certificate))
}

fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = path.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
    if is_plain { path } else { shell_quoted(&path) }
}
