//! A database with an account in it, and what of it is to be seen from outside.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use testkit::blocking::{Response, new_message, new_pet, post_once};
use testkit::postgres::query;
use testkit::{Database, PostgresServer, Server};

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
        Self::at(PostgresServer::shared().database())
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

    /// How often each text was taken in: as an animal's name, as a message, as an order of an animal that was for sale, or
    /// as the approval of an order.
    pub fn effects(&self) -> HashMap<String, usize> {
        let mut effects = HashMap::new();
        let effect = format!(
            "SELECT name FROM pets WHERE name NOT IN ('{FOR_SALE}', '{ORDERED}')
             UNION ALL SELECT message FROM messages
             UNION ALL SELECT 'order of ' || pet_id FROM orders JOIN pets ON pets.id = pet_id WHERE name = '{FOR_SALE}'
             UNION ALL SELECT 'approval of ' || id FROM orders WHERE status = 1"
        );
        for text in self.sql(&effect) {
            *effects.entry(text).or_default() += 1;
        }
        effects
    }
}

/// The names of animals that are there to be ordered, and of those whose orders are there to be approved.
const FOR_SALE: &str = "for sale";
const ORDERED: &str = "ordered";

/// Which operation a request with a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    CreatePet,
    SendMessage,
    PlaceOrder,
    ApproveOrder,
}

impl Operation {
    pub const ALL: [Self; 4] = [Self::CreatePet, Self::SendMessage, Self::PlaceOrder, Self::ApproveOrder];

    /// Those that take any text.
    pub const OF_TEXT: [Self; 2] = [Self::CreatePet, Self::SendMessage];

    /// What its first answer's status is.
    pub const fn status(self) -> u16 {
        match self {
            Self::CreatePet | Self::PlaceOrder => 201,
            Self::SendMessage => 202,
            Self::ApproveOrder => 200,
        }
    }

    /// What to ask for, so that it can be done: `what`, which is used once, or an order of an animal that is made for it.
    pub fn text(self, service: &Server, key: &str, what: &str) -> String {
        let made = |operation: Self, step: &str, text: &str| {
            let answer = operation.ask_until_settled(service, key, &format!("{what}-{step}"), text);
            assert_eq!(answer.status, operation.status(), "{answer:?}");
            answer.json()["id"].as_i64().unwrap()
        };
        match self {
            Self::CreatePet | Self::SendMessage => what.to_owned(),
            Self::PlaceOrder => format!("order of {}", made(Self::CreatePet, "animal", FOR_SALE)),
            Self::ApproveOrder => {
                let pet = made(Self::CreatePet, "animal", ORDERED);
                format!("approval of {}", made(Self::PlaceOrder, "order", &format!("order of {pet}")))
            }
        }
    }

    /// The path and body of a request for `text`.
    pub fn request(self, text: &str) -> (String, String) {
        let id = text.rsplit(' ').next().unwrap_or_default();
        match self {
            Self::CreatePet => ("/v1/pets".into(), new_pet(text)),
            Self::SendMessage => ("/v1/messages".into(), new_message(text)),
            Self::PlaceOrder => ("/v1/store/orders".into(), format!(r#"{{"petId":{id}}}"#)),
            Self::ApproveOrder => (format!("/v1/store/orders/{id}/approve"), String::new()),
        }
    }

    /// The address of its door.
    pub fn door(self, service: &Server) -> &str {
        if self == Self::SendMessage { &service.messages } else { &service.store }
    }

    /// Asks once.
    pub fn ask(self, service: &Server, key: &str, once: &str, text: &str) -> Response {
        let (path, body) = self.request(text);
        post_once(self.door(service), &path, key, once, &body)
    }

    /// Asks again while the answer is one of those that say to, as a client would.
    pub fn ask_until_settled(self, service: &Server, key: &str, once: &str, text: &str) -> Response {
        let began = Instant::now();
        loop {
            let answer = self.ask(service, key, once, text);
            if !answer.says_to_retry() {
                return answer;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "it does not settle: {answer:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
