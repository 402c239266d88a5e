//! What clients were told of their writes, to be held against what the database has.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::process::{Answer, Process};
use crate::trial::is_full;

/// How long a request may be on its way to the service: longer where other tests have the cores meanwhile.
fn on_its_way() -> Duration {
    Duration::from_millis(if is_full() { 5 } else { 50 })
}

/// Every write has a name of its own, which is an animal's name or a message's text.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    /// The id that was answered, as JSON, by name.
    acknowledged: HashMap<String, String>,
    /// Refused with a 4xx: such a write is never there.
    refused: HashSet<String>,
    /// Refused with a 503, and when that was first.
    unavailable: HashSet<String>,
    unavailable_since: Option<Instant>,
    /// Sent, and not answered; and when.
    unknown: HashMap<String, Instant>,
}

/// How a database differs from a ledger, by names. Nothing may be `lost`, `doubled`, `refused` or `never_sent`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Acknowledged, and not there or not with the id that was answered.
    pub lost: Vec<String>,
    pub doubled: Vec<String>,
    /// Refused, and there.
    pub refused: Vec<String>,
    pub never_sent: Vec<String>,
    /// Answered with 503, and there: right where the answer stood for an unknown outcome.
    pub unavailable: Vec<String>,
    /// Not answered, and there.
    pub settled: usize,
}

impl Ledger {
    /// To be noted before a write is sent: from here on its outcome is unknown.
    pub fn sent(&self, name: &str) {
        assert_eq!(self.entries().unknown.insert(name.to_owned(), Instant::now()), None, "{name} is sent twice");
    }

    /// Notes the answer to a write: its status and body.
    pub fn answered(&self, name: &str, status: u16, body: &str) {
        let mut entries = self.entries();
        entries.unknown.remove(name);
        match status {
            201 | 202 => {
                let body: serde_json::Value = serde_json::from_str(body).unwrap();
                entries.acknowledged.insert(name.to_owned(), body["id"].to_string());
            }
            503 => {
                entries.unavailable_since.get_or_insert_with(Instant::now);
                entries.unavailable.insert(name.to_owned());
            }
            400..500 => {
                entries.refused.insert(name.to_owned());
            }
            _ => panic!("{name} was answered with {status}: {body}"),
        }
    }

    /// Adds an animal, and notes what becomes of it.
    pub fn create_pet(&self, service: &Process, key: &str, name: &str) -> Answer {
        self.sent(name);
        let answer = service.create_pet(key, name);
        self.answered(name, answer.status, answer.text.split_once("\r\n\r\n").unwrap().1);
        answer
    }

    pub fn acknowledged(&self) -> usize {
        self.entries().acknowledged.len()
    }

    /// The ids that were answered so far, by name.
    pub fn acknowledgements(&self) -> HashMap<String, String> {
        self.entries().acknowledged.clone()
    }

    pub fn unavailable(&self) -> usize {
        self.entries().unavailable.len()
    }

    /// How many were waiting when a 503 was first answered, and were never told.
    pub fn left_waiting(&self) -> usize {
        let entries = self.entries();
        let Some(since) = entries.unavailable_since else { return entries.unknown.len() };
        entries.unknown.values().filter(|sent| **sent + on_its_way() < since).count()
    }

    pub fn unavailable_since(&self) -> Option<Instant> {
        self.entries().unavailable_since
    }

    /// The acknowledged animals that are not among these: ids by names.
    pub fn missing_animals(&self, there: &HashMap<String, String>) -> Vec<String> {
        let entries = self.entries();
        let animals = entries.acknowledged.iter().filter(|(_, id)| !id.contains("msg_"));
        animals.filter(|(name, id)| there.get(*name) != Some(id)).map(|(name, _)| name.clone()).collect()
    }

    /// As it was when no more than this was acknowledged: names and ids.
    pub fn as_of(&self, acknowledged: HashMap<String, String>) -> Self {
        let now = self.entries();
        let sent = now.unknown.keys().chain(now.acknowledged.keys());
        let unknown = sent.filter(|name| !acknowledged.contains_key(*name));
        let unknown = unknown.map(|name| (name.clone(), Instant::now())).collect();
        Self(Arc::new(Mutex::new(Entries {
            acknowledged,
            unknown,
            refused: now.refused.clone(),
            ..Entries::default()
        })))
    }

    /// Holds it against the database in a folder, which must be whole.
    pub fn compare(&self, data_dir: &Path) -> Differences {
        self.try_compare(data_dir).unwrap()
    }

    /// The same, where the database may be broken.
    pub fn try_compare(&self, data_dir: &Path) -> Result<Differences, String> {
        let rows = rows(&data_dir.join("petstore.db")).map_err(|error| format!("broken: {error}"))?;
        let entries = self.entries();
        let mut differences = Differences::default();
        let mut there = HashMap::new();
        for (name, id) in rows {
            if there.insert(name.clone(), id).is_some() {
                differences.doubled.push(name);
            }
        }
        let lost = entries.acknowledged.iter().filter(|(name, id)| there.get(*name) != Some(id));
        differences.lost = lost.map(|(name, _)| name.clone()).collect();
        for name in there.into_keys() {
            if entries.refused.contains(&name) {
                differences.refused.push(name);
            } else if entries.unavailable.contains(&name) {
                differences.unavailable.push(name);
            } else if entries.unknown.contains_key(&name) {
                differences.settled += 1;
            } else if !entries.acknowledged.contains_key(&name) {
                differences.never_sent.push(name);
            }
        }
        Ok(differences)
    }

    /// The control: damages the database, which the comparison must notice. Returns how much it noticed, in words.
    pub fn notices_damage(&self, data_dir: &Path) -> String {
        let conn = Connection::open(data_dir.join("petstore.db")).unwrap();
        let one_of_each = [false, true].map(|message| {
            let entries = self.entries();
            let found = entries.acknowledged.iter().find(|(_, id)| id.contains("msg_") == message);
            found.expect("one was acknowledged").0.clone()
        });
        for name in &one_of_each {
            let deleted = conn.execute("DELETE FROM pets WHERE name = ?1", [name]).unwrap()
                + conn.execute("DELETE FROM messages WHERE message = ?1", [name]).unwrap();
            assert_eq!(deleted, 1, "{name}");
        }
        let add = "INSERT INTO pets (id, name, category_id, status) SELECT max(id) + 1, ?1, 1, 0 FROM pets";
        conn.execute(add, ["nobody sent this"]).unwrap();
        drop(conn);
        let differences = self.compare(data_dir);
        assert_eq!((differences.lost.len(), differences.never_sent.len()), (2, 1), "the comparison sees no damage");
        "a control that deletes 2 and adds 1 is noticed".into()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap()
    }
}

impl Differences {
    /// What is not as it was told, but for what was answered with 503.
    pub fn wrong(&self) -> Option<String> {
        let Self { lost, doubled, refused, never_sent, .. } = self;
        let wrong = [("lost", lost), ("doubled", doubled), ("refused and there", refused), ("never sent", never_sent)];
        let (what, names) = wrong.into_iter().find(|(_, names)| !names.is_empty())?;
        Some(format!("{} {what}, such as {}", names.len(), names[0]))
    }

    pub fn assert_as_told(&self) {
        assert_eq!(self.wrong(), None);
    }

    /// The same, where a 503 says that nothing was done.
    pub fn assert_nothing_refused_is_there(&self) {
        self.assert_as_told();
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

/// The names and ids of all animals and messages, ids as JSON writes them. Read as any SQLite program would.
fn rows(file: &Path) -> rusqlite::Result<Vec<(String, String)>> {
    let conn = Connection::open(file)?;
    let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if check != "ok" {
        return Err(rusqlite::Error::ToSqlConversionFailure(check.into()));
    }
    let rows = "SELECT name, CAST(id AS TEXT) FROM pets
                UNION ALL SELECT message, '\"msg_' || lower(hex(id)) || '\"' FROM messages";
    conn.prepare(rows)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
