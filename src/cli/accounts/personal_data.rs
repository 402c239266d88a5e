//! `petstore account export`

use std::io;

use clap::Args;

use crate::cli::accounts::audit::is_about;
use crate::cli::data::database::find_account;
use crate::cli::terminal::table::{Listed, PrintedList};
use crate::cli::{Create, Failure, Outcome, print, with_store};
use crate::config::Common;
use crate::domain::{
    AuditQuery, Direction, Email, MessageQuery, MessageRecord, OrderQuery, PageLimit, PageQuery, Timestamp,
};

/// Number of messages that are printed together.
const MESSAGES: usize = 100;

/// Print all that the store knows of an account, as JSON
///
/// The account, its keys, orders and messages, and the rows of the audit that name it. Without secrets: of a password, a key
/// and a session, the store has only a digest, and of an `Idempotency-Key`, too, with the response for 24 hours.
#[derive(Args, Debug)]
pub struct ExportAccount {
    /// E-mail address of the account
    #[arg(value_parser = Email::parse)]
    email: Email,
}

impl ExportAccount {
    pub fn run(self, common: &Common) -> Outcome {
        with_store(common, Create::Never, async |store| {
            let account = find_account(&store, &self.email).await?;
            print(&format!("{{\n\"account\": {:#},\n\"keys\": ", account.json()))?;
            let mut keys = store.list_keys().await?;
            keys.retain(|key| key.account == account.email);
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
                list.add(&std::mem::take(&mut page)).map_err(|Failure(why)| io::Error::other(why))
            };
            let query = MessageQuery { account: Some(account.id), state: None, newest: None };
            store.export_messages(&query, &mut keep).await?;
            list.add(&page)?;
            list.end()?;

            print(",\n\"audit\": ")?;
            let (mut list, since) = (PrintedList::new(true), Timestamp::from_milliseconds(0));
            let mut page = PageQuery { limit, status: None, after: None, direction: Direction::Ascending };
            loop {
                let (mut entries, more) = store.list_audit(&AuditQuery { page, since }).await?;
                page.after = entries.last().map(|last| last.id);
                entries.retain(|entry| is_about(entry, &account.email));
                list.add(&entries)?;
                if !more {
                    break list.end()?;
                }
            }
            print("}\n")
        })
    }
}
