//! `petstore account export`

use std::io;

use serde_json::json;

use crate::cli::accounts::account::OneAccount;
use crate::cli::accounts::audit::pages;
use crate::cli::data::database::find_account;
use crate::cli::terminal::table::{Listed, PrintedList};
use crate::cli::{Outcome, print_open, with_store};
use crate::config::Common;
use crate::domain::{
    Account, Action, AuditEntry, AuditFilter, Direction, Email, MessageQuery, MessageRecord, OrderQuery, PageLimit,
    PageQuery,
};
use crate::runtime::clock::Clock;
use crate::store::Store;

/// Number of messages that are printed together.
const MESSAGES: usize = 100;

impl OneAccount {
    pub fn export(self, common: &Common) -> Outcome {
        with_store(common, None, async |store| {
            let account = find_account(store, &self.email).await?;
            print(&format!("{{\n\"account\": {:#}", account.json()))?;
            print_sessions(store, &account).await?;
            print_keys(store, &account).await?;
            print_orders(store, &account).await?;
            print_messages(store, &account).await?;
            print_audit(store, &account).await?;
            print("}\n")
        })
    }
}

async fn print_sessions(store: &Store, account: &Account) -> Outcome {
    let session = |(created, used)| json!({ "createdAt": created, "lastUsedAt": used });
    let sessions: Vec<_> = store.list_sessions(account.id).await?.into_iter().map(session).collect();
    print(&format!(",\n\"sessions\": {:#}", json!(sessions)))
}

async fn print_keys(store: &Store, account: &Account) -> Outcome {
    let (mut list, now, mut after) = (Part::begin("keys")?, Clock::System.now(), None);
    loop {
        let page = PageQuery { limit: PageLimit::LONGEST, status: None, after, direction: Direction::Ascending };
        let (keys, more) = store.list_keys_of(account.id, &page, now).await?;
        after = keys.last().map(|last| last.id.0);
        list.add(&keys)?;
        if !more {
            return list.end();
        }
    }
}

async fn print_orders(store: &Store, account: &Account) -> Outcome {
    let (mut list, mut after) = (Part::begin("orders")?, None);
    loop {
        let query = OrderQuery { limit: PageLimit::LONGEST, status: None, after, direction: Direction::Ascending };
        let mut orders = Vec::new();
        let keep = &mut |order| orders.push((order, account.email.as_str().to_owned()));
        let more = store.list_orders(Some(account.id), &query, keep).await?;
        after = orders.last().map(|(last, _)| last.id);
        list.add(&orders)?;
        if !more {
            return list.end();
        }
    }
}

async fn print_messages(store: &Store, account: &Account) -> Outcome {
    let (mut list, mut messages) = (Part::begin("messages")?, Vec::new());
    let mut keep = |message: MessageRecord| {
        messages.push(message);
        if messages.len() < MESSAGES {
            return Ok(());
        }
        list.add(&std::mem::take(&mut messages)).map_err(io::Error::other)
    };
    let query = MessageQuery { account: Some(account.id), state: None, newest: None };
    store.export_messages(&query, &mut keep).await?;
    list.add(&messages)?;
    list.end()
}

async fn print_audit(store: &Store, account: &Account) -> Outcome {
    let filter = AuditFilter { account: Some(account.email.clone()), ..AuditFilter::default() };
    let (mut list, mut is_created) = (Part::begin("audit")?, false);
    let add = |mut entries: Vec<AuditEntry>| {
        // Earlier rows are of a deleted account with this address.
        entries.retain(|entry| {
            is_created |= entry.at >= account.created_at;
            is_created
        });
        entries.iter_mut().for_each(|entry| hide_others(entry, &account.email));
        list.add(&entries).map(|()| true)
    };
    pages(store, &filter, Direction::Ascending, add).await?;
    list.end()
}

/// Replaces the addresses of other accounts, and removes what is known of their requests.
fn hide_others(entry: &mut AuditEntry, account: &Email) {
    let others = |text: &str| {
        let is_other = |word: &&str| word.contains('@') && !account.is_named(word.trim_end_matches(':'));
        text.split(' ').map(|word| if is_other(&word) { "[hidden]" } else { word }).collect::<Vec<_>>().join(" ")
    };
    // The address that it had before is its own.
    let is_renamed = entry.action == Action::SetEmail.as_str()
        && entry.subject.rsplit(' ').next().is_some_and(|new| account.is_named(new));
    if !is_renamed {
        entry.subject = others(&entry.subject);
    }
    if !account.is_named(&entry.actor) {
        entry.actor = others(&entry.actor);
        (entry.client_address, entry.request_id) = (None, None);
    }
}

/// Prints. Fails if the reader has closed the pipe, because half an export is no success.
fn print(text: &str) -> Outcome {
    check_open(print_open(text)?)
}

fn check_open(is_open: bool) -> Outcome {
    is_open.then_some(()).ok_or_else(|| "the reader closed the pipe before the end".into())
}

/// A named list of the export.
struct Part(PrintedList);

impl Part {
    fn begin(name: &str) -> Outcome<Self> {
        print(&format!(",\n\"{name}\": ")).map(|()| Self(PrintedList::new(true)))
    }

    fn add<T: Listed>(&mut self, records: &[T]) -> Outcome {
        check_open(self.0.add(records)?)
    }

    fn end(self) -> Outcome {
        self.0.end()
    }
}
