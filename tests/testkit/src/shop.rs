//! A database with a key, and the messages that it sends.

use serde_json::Value;

use crate::client::Response;
use crate::database::Database;
use crate::server::Server;
use crate::wait::{TIMEOUT, within};

/// A database with a staff account, and a key of it.
pub struct Shop {
    pub database: Database,
    pub key: String,
}

impl Shop {
    pub fn on_sqlite() -> Self {
        Self::on(Database::temporary())
    }

    pub fn on_postgresql() -> Self {
        Self::on(Database::postgres())
    }

    pub fn on_every_database() -> [Self; 2] {
        [Self::on_sqlite(), Self::on_postgresql()]
    }

    /// Creates the account in a new database.
    pub fn on(database: Database) -> Self {
        Self { key: database.make_key(), database }
    }

    pub fn send(&self, server: &Server, text: &str) -> Response {
        let answer = server.send_message(&self.key, text);
        assert_eq!(answer.status(), 202, "{answer:?}");
        answer
    }

    /// Sends `count` messages: the text and a number, from 0.
    pub fn send_numbered(&self, server: &Server, text: &str, count: usize) {
        for number in 0..count {
            self.send(server, &format!("{text} {number}"));
        }
    }

    pub fn messages(&self, flags: &str) -> Vec<Value> {
        self.database.json(&format!("messages list {flags}"))
    }

    pub fn assert_nothing_waits(&self) {
        within(TIMEOUT, "marking messages as sent", || self.messages("--state waiting").is_empty());
    }
}
