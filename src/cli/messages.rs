//! `petstore messages …`

use clap::{Args, Subcommand};

use super::export::{self, Stopped};
use super::table::{in_order, moment, table};
use super::{Create, Failure, Outcome, print, with_store};
use crate::config::Common;
use crate::domain::{Email, Message, MessageQuery, MessageRecord, MessageState, Timestamp};
use crate::store::Store;

/// How many characters of a message the table shows.
const SHOWN: usize = 40;

#[derive(Subcommand, Debug)]
pub enum Messages {
    List(List),
    Export(Export),
}

/// List messages, the newest first, and when they were sent
///
/// A message is sent once the NATS server of `--relay` has acknowledged it, and waits before. The API calls both `queued`.
#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    which: Which,
    /// How many at most
    #[arg(long, value_name = "NUMBER", default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print a JSON array of objects
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

/// Write messages as newline-delimited JSON, one to a line
///
/// They come account by account, the oldest first. Each has what the API answered, and besides `account`, the address, and `sentAt`, `null` where it waits.
///
/// Every message that exists throughout the export appears exactly once, as it is when its page of 200 is read. The export is not of one moment; `petstore backup` is. However slowly the output is read, the service goes on.
#[derive(Args, Debug)]
pub struct Export {
    #[command(flatten)]
    target: export::Target,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    common: Common,
}

#[derive(Args, Debug)]
struct Which {
    /// Only messages of this account
    #[arg(long, value_name = "EMAIL", value_parser = Email::parse)]
    account: Option<Email>,
    /// Only messages that wait, or that were sent
    #[arg(long, value_name = "STATE")]
    state: Option<MessageState>,
}

impl Messages {
    pub fn run(self) -> Outcome {
        match self {
            Self::List(command) => command.run(),
            Self::Export(command) => command.run(),
        }
    }
}

impl Which {
    async fn query(self, store: &Store, newest: Option<u32>) -> Result<MessageQuery, Failure> {
        let account = match &self.account {
            None => None,
            Some(email) => {
                let found = store.find_account(email).await?;
                Some(found.ok_or_else(|| Failure(format!("there is no account {}", email.as_str())))?.id)
            }
        };
        Ok(MessageQuery { account, state: self.state, newest })
    }
}

impl List {
    fn run(self) -> Outcome {
        with_store(&self.common, Create::Never, async |store| {
            let query = self.which.query(&store, Some(self.limit)).await?;
            let mut messages = Vec::new();
            let mut keep = |record| {
                messages.push(ListedMessage::from(record));
                Ok(())
            };
            store.export_messages(&query, &mut keep).await??;
            print(&if self.json { format!("{}\n", serde_json::to_string_pretty(&messages)?) } else { shown(&messages) })
        })
    }
}

impl Export {
    fn run(self) -> Outcome {
        with_store(&self.common, Create::Never, async |store| {
            let query = self.which.query(&store, None).await?;
            let progress = export::progress(store.count_messages(&query).await?, &self.target);
            export::export(&self.target, "message", &progress, async |out| {
                let mut line = |record: MessageRecord| {
                    progress.0.inc(1);
                    serde_json::to_writer(&mut *out, &ListedMessage::from(record))?;
                    out.write_all(b"\n")
                };
                store.export_messages(&query, &mut line).await?.map_err(Stopped::from)
            })
            .await
        })
    }
}

/// A message as JSON shows it: the interface's fields, and what became of it.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedMessage {
    id: String,
    message: String,
    status: &'static str,
    created_at: Timestamp,
    account: String,
    sent_at: Option<Timestamp>,
}

impl From<MessageRecord> for ListedMessage {
    fn from(record: MessageRecord) -> Self {
        let MessageRecord { message, account, sent_at } = record;
        Self {
            id: message.id.to_string(),
            message: message.text.as_str().to_owned(),
            status: Message::QUEUED,
            created_at: message.created_at,
            account: account.as_str().to_owned(),
            sent_at,
        }
    }
}

fn shown(messages: &[ListedMessage]) -> String {
    let head = ["ID", "ACCOUNT", "CREATED", "SENT", "MESSAGE"];
    let rows = messages.iter().map(|message| {
        [
            message.id.clone(),
            in_order(&message.account),
            message.created_at.to_string(),
            moment(message.sent_at),
            on_a_line(&message.message),
        ]
    });
    table(head, rows)
}

/// The beginning of a text, in one line.
fn on_a_line(text: &str) -> String {
    let line: String = in_order(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(SHOWN) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}
