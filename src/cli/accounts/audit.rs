//! `petstore audit`

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use crate::cli::terminal::table::{Listed, PrintedList};
use crate::cli::{Outcome, with_store};
use crate::config::Common;
use crate::domain::audit::Action;
use crate::domain::time::duration;
use crate::domain::{AuditEntry, AuditFilter, Direction, Email, PageLimit, PageQuery};
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
    #[arg(long, value_parser = actions(), hide_possible_values = true)]
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
        let Self { since, until, account, action, key, subject, json } = self;
        if until.is_some_and(|until| until >= since) {
            return Err("--until must be less than --since: both go back from now".into());
        }
        let now = Clock::System.now();
        let (since, until) = (now.minus(since), until.map(|until| now.minus(until)));
        let filter = AuditFilter { since, until, account, action, key, subject };
        with_store(common, None, async |store| {
            let mut printed = PrintedList::new(json);
            pages(store, &filter, Direction::Descending, |entries| printed.add(&entries)).await?;
            printed.end()
        })
    }
}

/// The actions, and the first words of their names.
fn actions() -> PossibleValuesParser {
    let names = Action::ALL.iter().flat_map(|action| action.as_str().split('.').take(1).chain([action.as_str()]));
    PossibleValuesParser::new(names.collect::<BTreeSet<_>>())
}

/// Passes the rows that a filter selects to `each`, page by page, until it returns false.
pub async fn pages(
    store: &Store,
    filter: &AuditFilter,
    direction: Direction,
    mut each: impl FnMut(Vec<AuditEntry>) -> Outcome<bool>,
) -> Outcome {
    let mut page = PageQuery { limit: PageLimit::LONGEST, status: None, after: None, direction };
    loop {
        let (entries, more) = store.list_audit(filter, page).await?;
        page.after = entries.last().map(|last| last.id);
        if !each(entries)? || !more {
            return Ok(());
        }
    }
}

impl Listed for AuditEntry {
    const HEAD: &[&str] = &["ID", "TIME", "ACTION", "ACTOR", "CLIENT", "REQUEST", "SUBJECT"];

    const FIELDS: &[&str] = &["id", "createdAt", "action", "actor", "clientAddress", "requestId", "subject"];

    fn json(&self) -> Value {
        json!(self)
    }
}
