//! A database with an account in it, and what of it is to be seen from outside.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::postgres_server::{Server, query};
use crate::process::{Answer, Database, Process};

pub struct Shop {
    pub database: Database,
    /// A key of its account.
    pub key: String,
    inside: Inside,
}

enum Inside {
    Folder(tempfile::TempDir),
    Url(String),
}

impl Shop {
    pub fn on_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::folder(folder.path());
        Self { key: database.make_key(), database, inside: Inside::Folder(folder) }
    }

    pub fn on_postgresql() -> Self {
        Self::at(Server::shared().database())
    }

    pub fn at(url: String) -> Self {
        let database = Database::url(&url);
        Self { key: database.make_key(), database, inside: Inside::Url(url) }
    }

    /// The rows of a query of one column, or nothing of a change, by another program than petstore.
    pub fn sql(&self, sql: &str) -> Vec<String> {
        match &self.inside {
            Inside::Url(url) => query(url, sql).lines().map(str::to_owned).collect(),
            Inside::Folder(folder) => {
                let conn = Connection::open(folder.path().join("petstore.db")).unwrap();
                conn.busy_timeout(Duration::from_secs(10)).unwrap();
                let mut statement = conn.prepare(sql).unwrap();
                let rows = statement.query_map([], |row| row.get(0)).unwrap();
                rows.map(Result::unwrap).collect()
            }
        }
    }

    /// How often each text was taken in, as an animal's name or as a message.
    pub fn effects(&self) -> HashMap<String, usize> {
        let mut effects = HashMap::new();
        for text in self.sql("SELECT name FROM pets UNION ALL SELECT message FROM messages") {
            *effects.entry(text).or_default() += 1;
        }
        effects
    }
}

/// Which of the two operations a request with a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    CreatePet,
    SendMessage,
}

impl Operation {
    pub const BOTH: [Self; 2] = [Self::CreatePet, Self::SendMessage];

    /// What its first answer's status is.
    pub const fn status(self) -> u16 {
        match self {
            Self::CreatePet => 201,
            Self::SendMessage => 202,
        }
    }

    /// Asks once.
    pub fn ask(self, service: &Process, key: &str, once: &str, text: &str) -> Answer {
        match self {
            Self::CreatePet => service.create_pet_once(key, once, text),
            Self::SendMessage => service.send_message_once(key, once, text),
        }
    }

    /// Asks again while the answer is one of those that say to, as a client would.
    pub fn ask_until_settled(self, service: &Process, key: &str, once: &str, text: &str) -> Answer {
        let began = Instant::now();
        loop {
            let answer = self.ask(service, key, once, text);
            if !matches!(answer.status, 409 | 503) {
                return answer;
            }
            assert!(answer.text.contains("\r\nretry-after: "), "{answer:?}");
            assert!(began.elapsed() < Duration::from_secs(30), "it does not settle: {answer:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
