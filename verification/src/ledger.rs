//! The outcomes that clients saw for their writes, to compare with the database.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use testkit::{Database, Response, Server};

/// Records writes by their unique names: an animal's name or a message's text.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    /// The acknowledged ids, as JSON, by name.
    acknowledged: HashMap<String, String>,
    /// Rejected with a 4xx. These writes must not be in the database.
    refused: HashSet<String>,
    /// Rejected with a 503.
    unavailable: HashSet<String>,
    /// The first rejection after which no write was acknowledged.
    unavailable_since: Option<Instant>,
    /// Sent without a response so far.
    unknown: HashSet<String>,
}

/// Differences between a database and a ledger, by names. `lost`, `doubled`, `refused` and `never_sent` must be empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Acknowledged, but missing or stored with another id.
    pub lost: Vec<String>,
    pub doubled: Vec<String>,
    /// Rejected, but stored.
    pub refused: Vec<String>,
    pub never_sent: Vec<String>,
    /// Answered with 503, but stored. Allowed if that 503 reported an unknown outcome.
    pub unavailable: Vec<String>,
    /// Not answered, but stored.
    pub settled: usize,
}

impl Ledger {
    /// Records a write before it is sent. Its outcome is unknown from here on.
    pub fn sent(&self, name: &str) {
        assert!(self.entries().unknown.insert(name.to_owned()), "{name} is sent twice");
    }

    /// Records the response to a write.
    pub fn answered(&self, name: &str, response: &Response) {
        let mut entries = self.entries();
        entries.unknown.remove(name);
        match response.status() {
            201 | 202 => {
                entries.unavailable_since = None;
                entries.acknowledged.insert(name.to_owned(), response.json()["id"].to_string());
            }
            503 => {
                entries.unavailable_since.get_or_insert_with(Instant::now);
                entries.unavailable.insert(name.to_owned());
            }
            400..500 => _ = entries.refused.insert(name.to_owned()),
            _ => panic!("{name}: {response:?}"),
        }
    }

    /// Records animals that a command reported as imported, their ids by name.
    pub fn imported(&self, animals: HashMap<String, String>) {
        self.entries().acknowledged.extend(animals);
    }

    /// Creates an animal and records the outcome.
    pub fn create_pet(&self, service: &Server, key: &str, name: &str) -> Response {
        self.try_create_pet(service, key, name).unwrap()
    }

    /// Like [`Self::create_pet`]. Fails if the connection breaks.
    pub fn try_create_pet(&self, service: &Server, key: &str, name: &str) -> std::io::Result<Response> {
        self.sent(name);
        let response = service.pet_request(key, name).try_send_blocking()?;
        self.answered(name, &response);
        Ok(response)
    }

    pub fn acknowledged(&self) -> usize {
        self.entries().acknowledged.len()
    }

    /// The ids acknowledged so far, by name.
    pub fn acknowledgements(&self) -> HashMap<String, String> {
        self.entries().acknowledged.clone()
    }

    pub fn unavailable(&self) -> usize {
        self.entries().unavailable.len()
    }

    /// The names of the writes that got no response so far.
    pub fn unanswered(&self) -> HashSet<String> {
        self.entries().unknown.clone()
    }

    pub fn unavailable_since(&self) -> Option<Instant> {
        self.entries().unavailable_since
    }

    /// The acknowledged animals that are missing from `there`, a map of ids by name.
    pub fn missing_animals(&self, there: &HashMap<String, String>) -> Vec<String> {
        let entries = self.entries();
        let animals = entries.acknowledged.iter().filter(|(_, id)| !id.contains("msg_"));
        animals.filter(|(name, id)| there.get(*name) != Some(id)).map(|(name, _)| name.clone()).collect()
    }

    /// The ledger at an earlier time, when only `acknowledged` was acknowledged.
    pub fn as_of(&self, acknowledged: HashMap<String, String>) -> Self {
        let now = self.entries();
        let sent = now.unknown.iter().chain(now.acknowledged.keys()).chain(&now.unavailable);
        let unknown = sent.filter(|name| !acknowledged.contains_key(*name)).cloned().collect();
        Self(Arc::new(Mutex::new(Entries {
            acknowledged,
            unknown,
            refused: now.refused.clone(),
            ..Entries::default()
        })))
    }

    /// Compares the ledger with a database, which must be intact.
    pub fn compare(&self, database: &Database) -> Differences {
        self.try_compare(database).unwrap()
    }

    /// Compares the ledger with a database that may be corrupt.
    pub fn try_compare(&self, database: &Database) -> Result<Differences, String> {
        let rows = rows(database).map_err(|error| format!("corrupt: {error}"))?;
        let rows = rows.lines().map(|row| row.split_once(' ').unwrap());
        let entries = self.entries();
        let mut differences = Differences::default();
        let mut there = HashMap::new();
        for (id, name) in rows {
            if there.insert(name.to_owned(), id.to_owned()).is_some() {
                differences.doubled.push(name.to_owned());
            }
        }
        let lost = entries.acknowledged.iter().filter(|(name, id)| there.get(*name) != Some(id));
        differences.lost = lost.map(|(name, _)| name.clone()).collect();
        for name in there.into_keys() {
            if entries.refused.contains(&name) {
                differences.refused.push(name);
            } else if entries.unavailable.contains(&name) {
                differences.unavailable.push(name);
            } else if entries.unknown.contains(&name) {
                differences.settled += 1;
            } else if !entries.acknowledged.contains_key(&name) {
                differences.never_sent.push(name);
            }
        }
        Ok(differences)
    }

    /// The control: damages the database, which the comparison must detect. Returns a description.
    pub fn notices_damage(&self, database: &Database) -> &'static str {
        for message in [false, true] {
            let entries = self.entries();
            let found = entries.acknowledged.iter().find(|(_, id)| id.contains("msg_") == message);
            let name = found.expect("one was acknowledged").0;
            // An animal may have orders.
            database.sql(&format!("DELETE FROM orders WHERE pet_id IN (SELECT id FROM pets WHERE name = '{name}')"));
            database.sql(&format!("DELETE FROM pets WHERE name = '{name}'"));
            database.sql(&format!("DELETE FROM messages WHERE message = '{name}'"));
        }
        database.sql("INSERT INTO pets (name, category_id, status) VALUES ('nobody sent this', 1, 0)");
        let differences = self.compare(database);
        assert_eq!((differences.lost.len(), differences.never_sent.len()), (2, 1), "the comparison sees no damage");
        "a control that deletes 2 and adds 1 is noticed"
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap()
    }
}

impl Differences {
    /// Describes the first violation. A write that was answered with 503 may be stored.
    pub fn violation(&self) -> Option<String> {
        let Self { lost, doubled, refused, never_sent, .. } = self;
        let kinds = [("lost", lost), ("doubled", doubled), ("refused and there", refused), ("never sent", never_sent)];
        let (kind, names) = kinds.into_iter().find(|(_, names)| !names.is_empty())?;
        Some(format!("{} {kind}, such as {}", names.len(), names[0]))
    }

    pub fn assert_no_violation(&self) {
        assert_eq!(self.violation(), None);
    }

    /// Asserts in addition that no write answered with 503 is stored.
    pub fn assert_nothing_refused_is_there(&self) {
        self.assert_no_violation();
        assert!(self.unavailable.is_empty(), "answered with 503 and there: {:?}", self.unavailable);
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entries { acknowledged, refused, unavailable, unknown, .. } = &*self.entries();
        write!(
            f,
            "{} acknowledged, {} refused, {} unavailable, {} unknown",
            acknowledged.len(),
            refused.len(),
            unavailable.len(),
            unknown.len()
        )
    }
}

/// A line for each animal and message, with its id as JSON and its name. Read without petstore.
fn rows(database: &Database) -> Result<String, String> {
    let mut digits = "replace(CAST(id AS text), '-', '')";
    if database.is_embedded() {
        digits = "lower(hex(id))";
        let check = database.try_sql("PRAGMA integrity_check")?;
        if check != "ok" {
            return Err(check);
        }
    }
    database.try_sql(&format!(
        "SELECT CAST(id AS text) || ' ' || name FROM pets
         UNION ALL SELECT '\"msg_' || {digits} || '\" ' || message FROM messages"
    ))
}
