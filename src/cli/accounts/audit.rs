//! `petstore audit`

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::terminal::table::{Listed, PrintedList};
use crate::cli::{Create, Failure, Outcome, with_store};
use crate::config::Common;
use crate::domain::time::duration;
use crate::domain::{AuditEntry, AuditQuery, Direction, Email, PageLimit, PageQuery, Timestamp};
use crate::runtime::clock::Clock;
use crate::store::Store;

/// List the changes of accounts, keys and orders, newest first
///
/// The audit has every change of an account, password, role or key, every reset, restore and move, every cancelled order, and
/// every other step of an order by another than its customer. It is written in the transaction of the change.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  petstore audit --since 30d --key 7
  petstore audit --since 365d --account ada@example.com --action account
  petstore audit --since 2d --until 1d --json")]
pub struct Audit {
    /// Only changes of this last time, for instance 24h
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = duration)]
    since: Duration,
    /// No changes of this last time
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    until: Option<Duration>,
    /// Only changes by this account, of it, or of its keys and orders
    #[arg(long, value_name = "EMAIL", value_parser = Email::parse)]
    account: Option<Email>,
    /// Only this action, such as `key.revoke`, or these, such as `key`
    #[arg(long)]
    action: Option<String>,
    /// Only changes of the key with this id
    #[arg(long, value_name = "ID")]
    key: Option<i64>,
    /// Only changes whose subject has this text
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    /// Print a JSON array of objects
    #[arg(long)]
    json: bool,
}

impl Audit {
    pub fn run(self, common: &Common) -> Outcome {
        with_store(common, Create::Never, async |store| {
            let now = Clock::System.now();
            let (since, until) = (now.minus(self.since), self.until.map(|until| now.minus(until)));
            let mut printed = PrintedList::new(self.json);
            let add = |mut entries: Vec<AuditEntry>| {
                entries.retain(|entry| until.is_none_or(|until| entry.at < until) && self.selects(entry));
                printed.add(&entries)
            };
            pages(&store, since, Direction::Descending, add).await?;
            printed.end()
        })
    }

    fn selects(&self, entry: &AuditEntry) -> bool {
        let is_action = |action: &String| {
            entry.action.strip_prefix(&**action).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.account.as_ref().is_none_or(|email| is_about(entry, email))
            && self.action.as_ref().is_none_or(is_action)
            && self.key.is_none_or(|key| names_key(&entry.subject, key))
            && self.subject.as_ref().is_none_or(|text| entry.subject.contains(text))
    }
}

/// Passes the rows since a time to `each`, page by page, until it returns false.
pub async fn pages(
    store: &Store,
    since: Timestamp,
    direction: Direction,
    mut each: impl FnMut(Vec<AuditEntry>) -> Result<bool, Failure>,
) -> Outcome {
    let mut page = PageQuery { limit: PageLimit::LONGEST, status: None, after: None, direction };
    loop {
        let (entries, more) = store.list_audit(&AuditQuery { page, since }).await?;
        page.after = entries.last().map(|last| last.id);
        if !each(entries)? || !more {
            return Ok(());
        }
    }
}

/// Returns whether the account is the actor of a change, or named in its subject.
pub fn is_about(entry: &AuditEntry, account: &Email) -> bool {
    is_named(&entry.actor, account) || named(&entry.subject).split(' ').any(|name| is_named(name, account))
}

pub fn is_named(name: &str, account: &Email) -> bool {
    Email::parse(name).is_ok_and(|email| email == *account)
}

/// Returns the part of a subject before a text that a user has chosen, such as the name of a key.
fn named(subject: &str) -> &str {
    subject.split(": ").next().unwrap_or_default()
}

/// Returns whether a subject names a key by its id: "key 1 (…) of …: NAME", or "key 1 (…) to key 2 (…) of …".
fn names_key(subject: &str, key: i64) -> bool {
    let (keys, key) = (named(subject), format!("key {key} ("));
    keys.starts_with(&key) || keys.contains(&format!(" to {key}"))
}

impl Listed for AuditEntry {
    const HEAD: &[&str] = &["ID", "TIME", "ACTION", "ACTOR", "CLIENT", "REQUEST", "SUBJECT"];

    const FIELDS: &[&str] = &["id", "createdAt", "action", "actor", "clientAddress", "requestId", "subject"];

    fn json(&self) -> Value {
        json!({
            "id": self.id,
            "createdAt": self.at,
            "action": self.action,
            "actor": self.actor,
            "subject": self.subject,
            "clientAddress": self.client_address,
            "requestId": self.request_id,
        })
    }
}
