//! `petstore account export`

use std::io;
use std::time::Duration;

use clap::Args;

use crate::cli::accounts::audit::{is_about, is_named};
use crate::cli::data::database::find_account;
use crate::cli::terminal::table::{Listed, PrintedList};
use crate::cli::{Create, Failure, Outcome, print, with_store};
use crate::config::Common;
use crate::domain::{
    AuditEntry, AuditQuery, Direction, Email, MessageQuery, MessageRecord, OrderQuery, PageLimit, PageQuery, Timestamp,
};

/// Number of messages that are printed together.
const MESSAGES: usize = 100;

/// The clocks of two processes differ by less.
const A_MINUTE: Duration = Duration::from_mins(1);

/// Print what the store knows of an account, as JSON
///
/// The account, its keys, orders and messages, and the rows of the audit that name it, without other people. Without secrets: of
/// a password, a key, a session and an `Idempotency-Key`, the store has only a digest. Only after exit status 0, it is complete.
#[derive(Args, Debug)]
pub struct ExportAccount {
    /// E-mail address of the account
    #[arg(value_parser = Email::parse)]
    email: Email,
}

/// Replaces the addresses of other accounts, and what is known of their requests.
fn hide_others(entry: &mut AuditEntry, account: &Email) {
    let others = |text: &str| {
        let is_other = |word: &&str| word.contains('@') && !is_named(word.trim_end_matches(':'), account);
        text.split(' ').map(|word| if is_other(&word) { "[hidden]" } else { word }).collect::<Vec<_>>().join(" ")
    };
    entry.subject = others(&entry.subject);
    if !is_named(&entry.actor, account) {
        entry.actor = others(&entry.actor);
        (entry.client_address, entry.request_id) = (None, None);
    }
}

impl ExportAccount {
    pub fn run(self, common: &Common) -> Outcome {
        with_store(common, Create::Never, async |store| {
            let account = find_account(&store, &self.email).await?;
            print(&format!("{{\n\"account\": {:#},\n\"keys\": ", account.json()))?;
            let mut keys = store.list_keys().await?;
            keys.retain(|key| key.account.as_str() == account.email.as_str());
            let mut list = PrintedList::new(true);
            list.add(&keys)?;
            list.end()?;

            print(",\n\"orders\": ")?;
            let (limit, mut list, mut after) = (PageLimit::new(PageLimit::MAX.into())?, PrintedList::new(true), None);
            loop {
                let query = OrderQuery { limit, status: None, after, direction: Direction::Ascending };
                let mut page = Vec::new();
                let keep = &mut |order| page.push((order, account.email.as_str().to_owned()));
                let more = store.list_orders(Some(account.id), &query, keep).await?;
                after = page.last().map(|(order, _)| order.id);
                list.add(&page)?;
                if !more {
                    break list.end()?;
                }
            }

            print(",\n\"messages\": ")?;
            let (mut list, mut page) = (PrintedList::new(true), Vec::new());
            let mut keep = |message: MessageRecord| {
                page.push(message);
                if page.len() < MESSAGES {
                    return Ok(());
                }
                list.add(&std::mem::take(&mut page)).map(drop).map_err(|Failure(why)| io::Error::other(why))
            };
            let query = MessageQuery { account: Some(account.id), state: None, newest: None };
            store.export_messages(&query, &mut keep).await?;
            list.add(&page)?;
            list.end()?;

            print(",\n\"audit\": ")?;
            let (mut list, since) = (PrintedList::new(true), Timestamp::from_milliseconds(0));
            let created = account.created_at.minus(A_MINUTE);
            let mut page = PageQuery { limit, status: None, after: None, direction: Direction::Ascending };
            loop {
                let (mut entries, more) = store.list_audit(&AuditQuery { page, since }).await?;
                page.after = entries.last().map(|last| last.id);
                // Earlier ones are of a deleted account with this address.
                entries.retain(|entry| entry.at >= created && is_about(entry, &account.email));
                entries.iter_mut().for_each(|entry| hide_others(entry, &account.email));
                list.add(&entries)?;
                if !more {
                    break list.end()?;
                }
            }
            print("}\n")
        })
    }
}
