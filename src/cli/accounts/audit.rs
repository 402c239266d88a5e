//! `petstore audit`

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::terminal::table::{or_dash, print_list, strip_bidi, table};
use crate::cli::{Create, Outcome, with_store};
use crate::config::{Common, duration};
use crate::domain::{AuditEntry, AuditQuery, Direction, PageLimit, PageQuery};
use crate::runtime::clock::Clock;

/// List the changes of accounts, keys and orders, newest first
///
/// The audit has every change of an account, password, role or key, every reset, restore and move, and every step of an
/// order by another than its customer. It is written in the transaction of the change.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  petstore audit --since 30d
  petstore audit --json | jq '.[] | select(.action == \"key.revoke\")'")]
pub struct Audit {
    /// Only changes of this last time, for instance 24h
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = duration)]
    since: Duration,
    /// Print a JSON array of objects
    #[arg(long)]
    json: bool,
}

impl Audit {
    pub fn run(self, common: &Common) -> Outcome {
        with_store(common, Create::Never, async |store| {
            let limit = PageLimit::new(PageLimit::MAX.into())?;
            let mut page = PageQuery { limit, status: None, after: None, direction: Direction::Descending };
            let since = Clock::System.now().minus(self.since);
            let mut entries: Vec<AuditEntry> = Vec::new();
            loop {
                let (more_entries, more) = store.list_audit(&AuditQuery { page, since }).await?;
                entries.extend(more_entries);
                page.after = entries.last().map(|last| last.id);
                if !more {
                    return print_list(&entries, self.json, json, shown);
                }
            }
        })
    }
}

fn json(entry: &AuditEntry) -> Value {
    json!({
        "id": entry.id,
        "createdAt": entry.at,
        "action": entry.action,
        "actor": entry.actor,
        "subject": entry.subject,
        "clientAddress": entry.client_address,
        "requestId": entry.request_id,
    })
}

fn shown(entries: &[AuditEntry]) -> String {
    let rows = entries.iter().map(|entry| {
        [
            entry.id.to_string(),
            entry.at.to_string(),
            entry.action.clone(),
            strip_bidi(&entry.actor),
            or_dash(entry.client_address.as_deref()),
            or_dash(entry.request_id.as_deref()),
            strip_bidi(&entry.subject),
        ]
    });
    table(["ID", "TIME", "ACTION", "ACTOR", "CLIENT", "REQUEST", "SUBJECT"], rows)
}
