//! `petstore messages`

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tracing::Level;

use crate::cli::data::database::find_account_id;
use crate::cli::data::export;
use crate::cli::terminal::confirm::confirm;
use crate::cli::terminal::progress::counted;
use crate::cli::terminal::table::{Listed, print_list, shown, strip_bidi};
use crate::cli::{Outcome, actor, tell, with_store};
use crate::config::{Common, one_of};
use crate::domain::{Email, Invalid, MessageId, MessageQuery, MessageRecord, MessageState};
use crate::store::Store;

/// Maximum number of characters of a message in the table.
const PREVIEW: usize = 40;

#[derive(Subcommand, Debug)]
pub enum Messages {
    /// List the newest messages
    ///
    /// A message is waiting until the server of `--relay` has acknowledged it. Then it is sent. As in the API, the status of
    /// a waiting message is `queued`.
    List {
        #[command(flatten)]
        filter: Filter,
        /// Maximum number of messages
        #[arg(long, value_name = "NUMBER", default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// Print a JSON array of objects
        #[arg(long)]
        json: bool,
    },
    /// Export messages as newline-delimited JSON
    ///
    /// Messages are sorted by account, oldest first. Each line is the object of the API with two more fields: `account`, the
    /// e-mail address, and `sentAt`, which is `null` for a waiting message.
    ///
    /// The export is not a consistent snapshot, unlike `petstore backup`. It contains every message that exists throughout
    /// the export exactly once, in the state at the time when its page of 200 is read. The service is not blocked, however
    /// slowly the output is read.
    #[command(after_long_help = "\
Example:
  petstore messages export --state waiting waiting.ndjson")]
    Export {
        #[command(flatten)]
        target: export::Target,
        #[command(flatten)]
        filter: Filter,
    },
    /// Deliver waiting messages now
    ///
    /// Ends their delays and pauses after failures. The process that relays messages follows within a second.
    Retry {
        /// Ids of waiting messages
        #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all", value_parser = message_id)]
        ids: Vec<MessageId>,
        /// Retry all messages
        #[arg(long)]
        all: bool,
    },
    /// Give up waiting messages
    ///
    /// Deletes them, all or none, and records it in the audit. Asks for confirmation on a terminal; elsewhere, needs --yes.
    Discard {
        /// Ids of waiting messages
        #[arg(value_name = "ID", required = true, value_parser = message_id)]
        ids: Vec<MessageId>,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Args, Debug)]
pub struct Filter {
    /// Only messages of this account
    #[arg(long, value_name = "EMAIL", value_parser = Email::parse)]
    account: Option<Email>,
    /// Only messages in this state
    #[arg(long, value_name = "STATE", value_parser = one_of(&MessageState::ALL, MessageState::as_str))]
    state: Option<MessageState>,
}

impl Filter {
    async fn query(self, store: &Store, newest: Option<u32>) -> Outcome<MessageQuery> {
        let account = find_account_id(store, self.account.as_ref()).await?;
        Ok(MessageQuery { account, state: self.state, newest })
    }
}

impl Messages {
    pub fn run(self, common: &Common) -> Outcome {
        match self {
            Self::List { filter, limit, json } => list(common, filter, limit, json),
            Self::Export { target, filter } => with_store(common, None, async |store| {
                let query = filter.query(store, None).await?;
                let count = store.count_messages(&query).await.ok();
                target
                    .export(&common.data_dir, "message", count, async |write| {
                        let mut write = |record: MessageRecord| write(record.json().to_string().as_bytes());
                        store.export_messages(&query, &mut write).await
                    })
                    .await
            }),
            Self::Retry { ids, all: _ } => {
                with_store(common, None, async |store| changed(store.retry_messages(unique(ids)).await?))
            }
            Self::Discard { ids, yes } => {
                let ids = unique(ids);
                let count = counted(ids.len() as u64, "message");
                confirm(yes, &format!("Discard {count}?"), &format!("this would discard {count}"))?;
                with_store(common, None, async |store| changed(store.discard_messages(ids, actor()).await?))
            }
        }
    }
}

fn list(common: &Common, filter: Filter, limit: u32, json: bool) -> Outcome {
    with_store(common, None, async |store| {
        // One more is read to know that there are more.
        let query = filter.query(store, Some(limit.saturating_add(1))).await?;
        let mut messages = Vec::new();
        let mut keep = |record| {
            messages.push(record);
            Ok(())
        };
        store.export_messages(&query, &mut keep).await?;
        print_list(&messages[..messages.len().min(limit as usize)], json)?;
        if messages.len() > limit as usize {
            let newest = counted(limit.into(), "message");
            tell(Level::INFO, &format!("only the newest {newest}: a higher --limit lists more"));
        }
        Ok(())
    })
}

fn changed(are_waiting: bool) -> Outcome {
    let refused =
        "not all of these messages are waiting, and nothing was changed: see `petstore messages list --state waiting`";
    if are_waiting { Ok(()) } else { Err(refused.into()) }
}

fn unique(mut ids: Vec<MessageId>) -> Vec<MessageId> {
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn message_id(text: &str) -> Result<MessageId, Invalid> {
    MessageId::parse(text).ok_or_else(|| Invalid("an id is msg_ and 32 hexadecimal digits".into()))
}

impl Listed for MessageRecord {
    const HEAD: &[&str] = &["ID", "ACCOUNT", "CREATED", "SENT", "MESSAGE"];

    const FIELDS: &[&str] = &["id", "account", "createdAt", "sentAt", "message"];

    fn cell(field: &str, value: &Value) -> String {
        match value.as_str().filter(|_| field == "message") {
            Some(text) => preview(text),
            None => shown(value),
        }
    }

    /// The fields of the API, the account and the time of delivery.
    fn json(&self) -> Value {
        let mut object = Vec::new();
        self.message.write_json(self.sent_at, &mut object);
        let mut object: Value = serde_json::from_slice(&object).expect("a message is JSON");
        object["account"] = self.account.as_str().into();
        object["sentAt"] = json!(self.sent_at);
        object
    }
}

/// Returns the beginning of a text in one line.
fn preview(text: &str) -> String {
    let line: String = strip_bidi(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(PREVIEW) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}
