//! The audit: who changed accounts, roles, keys, the orders of others, and the store as a whole.

use std::convert::Infallible;
use std::net::IpAddr;

use super::{Email, PageQuery, Timestamp, Transition, names};

/// The name of the actor of a command, which has no account.
const COMMAND_LINE: &str = "command line";

names! {
    /// An audited change. The names are those in both databases, and never change.
    pub enum Action {
        CreateAccount = "account.create",
        SetPassword = "account.set_password",
        SetRole = "account.set_role",
        SuspendAccount = "account.suspend",
        ResumeAccount = "account.resume",
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
    /// The address of the account. `None` for the command line.
    pub account: Option<Email>,
    /// The name of a command's user. `None` if it is not known.
    pub user: Option<String>,
    /// `None` for the command line, as is the request's id.
    pub client_address: Option<IpAddr>,
    pub request_id: Option<String>,
}

impl Actor {
    pub const fn command_line(at: Timestamp) -> Self {
        Self { at, account: None, user: None, client_address: None, request_id: None }
    }

    /// Returns the address of the account, or a text that begins with `command line` and is no address.
    pub fn name(&self) -> &str {
        let user = self.user.as_deref().unwrap_or(COMMAND_LINE);
        self.account.as_ref().map_or(user, Email::as_str)
    }
}

/// A row of the audit. Names are those at its time, and stay when an account is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    pub id: i64,
    pub at: Timestamp,
    /// Not an [`Action`], because a newer process may have written the row.
    pub action: String,
    pub actor: String,
    pub subject: String,
    pub client_address: Option<String>,
    pub request_id: Option<String>,
}

/// Selects one page of the audit.
#[derive(Clone, Copy, Debug)]
pub struct AuditQuery {
    pub page: PageQuery<Infallible>,
    /// Lists only rows of this time or later.
    pub since: Timestamp,
}
