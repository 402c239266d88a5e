//! `petstore audit`

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::terminal::table::{Listed, or_dash, print_list, strip_bidi};
use crate::cli::{Create, Outcome, with_store};
use crate::config::Common;
use crate::domain::time::duration;
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
                    return print_list(&entries, self.json);
                }
            }
        })
    }
}

impl Listed for AuditEntry {
    const HEAD: &[&str] = &["ID", "TIME", "ACTION", "ACTOR", "CLIENT", "REQUEST", "SUBJECT"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.at.to_string(),
            self.action.clone(),
            strip_bidi(&self.actor),
            or_dash(self.client_address.as_deref()),
            or_dash(self.request_id.as_deref()),
            strip_bidi(&self.subject),
        ]
    }

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
