//! The audit: who changed accounts, roles, keys, the orders of others, and the store as a whole.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::Serialize;

use super::{Email, Timestamp, Transition, names};

names! {
    /// An audited change. The names are those in both databases, and never change.
    pub enum Action {
        CreateAccount = "account.create",
        SetPassword = "account.set_password",
        SetRole = "account.set_role",
        SuspendAccount = "account.suspend",
        ResumeAccount = "account.resume",
        CreateLink = "account.create_link",
        SetEmail = "account.set_email",
        DeleteAccount = "account.delete",
        EraseAccount = "account.erase",
        CreateKey = "key.create",
        RevokeKey = "key.revoke",
        RotateKey = "key.rotate",
        ApproveOrder = "order.approve",
        DeliverOrder = "order.deliver",
        CancelOrder = "order.cancel",
        /// A waiting message was given up.
        DiscardMessage = "message.discard",
        ResetStore = "store.reset",
        RestoreStore = "store.restore",
        MoveStore = "store.move",
    }
}

impl Action {
    /// A step of an order.
    pub const fn step(transition: Transition) -> Self {
        match transition {
            Transition::Approve => Self::ApproveOrder,
            Transition::Deliver => Self::DeliverOrder,
            Transition::Cancel => Self::CancelOrder,
        }
    }
}

/// The author of a change, with its time and the place it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub at: Timestamp,
    /// The address of the account, or a text that begins with `command line` and is no address.
    pub name: Cow<'static, str>,
    /// `None` for the command line, as is the request's id.
    pub client_address: Option<IpAddr>,
    pub request_id: Option<String>,
}

impl Actor {
    pub const fn command_line(at: Timestamp) -> Self {
        Self { at, name: Cow::Borrowed("command line"), client_address: None, request_id: None }
    }
}

/// A row of the audit, and of its JSON on the command line. Names are those at its time, and stay when an account is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    pub id: i64,
    #[serde(rename = "createdAt")]
    pub at: Timestamp,
    /// Not an [`Action`], because a newer process may have written the row.
    pub action: String,
    pub actor: String,
    pub subject: String,
    pub client_address: Option<String>,
    pub request_id: Option<String>,
}

/// Selects rows of the audit. The default selects all.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Rows of this time or later.
    pub since: Timestamp,
    /// Rows before this time.
    pub until: Option<Timestamp>,
    /// Changes by this account, of it, or of its keys and orders.
    pub account: Option<Email>,
    /// An action, such as `key.revoke`, or the first part of its name, such as `key`.
    pub action: Option<String>,
    /// Changes of the key with this id.
    pub key: Option<i64>,
    /// A part of the subject.
    pub subject: Option<String>,
}

impl AuditFilter {
    pub fn selects(&self, entry: &AuditEntry) -> bool {
        let is_action = |action: &String| {
            entry.action.strip_prefix(&**action).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        entry.at >= self.since
            && self.until.is_none_or(|until| entry.at < until)
            && self.account.as_ref().is_none_or(|email| is_about(entry, email))
            && self.action.as_ref().is_none_or(is_action)
            && self.key.is_none_or(|key| names_key(&entry.subject, key))
            && self.subject.as_ref().is_none_or(|text| entry.subject.contains(text))
    }
}

/// Returns whether the account is the actor of a change, or named in its subject.
fn is_about(entry: &AuditEntry, account: &Email) -> bool {
    account.is_named(&entry.actor) || named(&entry.subject).split(' ').any(|name| account.is_named(name))
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
