//! Promise 1: an acknowledged write survives a crash.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

use crate::process::{Database, Process};
use crate::trial::{self, Random};

const CLIENTS: usize = 32;

/// What clients were told: the ids of animals by name and of messages by text.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<HashMap<String, String>>>);

#[test]
fn an_acknowledged_write_survives_kill_9() {
    let (rounds, mut random) = (trial::rounds(10), Random::from_seed());
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(folder.path());
    let key = database.make_key();
    let ledger = Ledger::default();
    for round in 1..=rounds {
        let mut service = Process::serve(&database);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (key, ledger) = (key.clone(), ledger.clone());
                let (store, messages) = (service.store.clone(), service.messages.clone());
                thread::spawn(move || {
                    let name = format!("{round}-{client}");
                    match client % 4 {
                        0 => write(&messages, "/v1/messages", "message", &name, &key, &ledger),
                        _ => write(&store, "/v1/pets", "name", &name, &key, &ledger),
                    }
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(20 + random.below(200)));
        service.kill();
        for client in clients {
            client.join().unwrap();
        }
        let lost = ledger.lost(folder.path());
        assert!(lost.is_empty(), "round {round}: lost {lost:?}");
        if round % 20 == 0 {
            println!("round {round} of {rounds}: {} acknowledged, none lost", ledger.len());
        }
    }
    let acknowledged = ledger.len();
    assert!(acknowledged > 10 * rounds as usize, "only {acknowledged} were acknowledged: the test has tested little");

    // The control: what was acknowledged and deleted behind the ledger's back must be missed.
    let outside = Connection::open(folder.path().join("petstore.db")).unwrap();
    for text in ledger.one_of_each() {
        let deleted = outside.execute("DELETE FROM pets WHERE name = ?1", [&text]).unwrap()
            + outside.execute("DELETE FROM messages WHERE message = ?1", [&text]).unwrap();
        assert_eq!(deleted, 1, "{text}");
    }
    let missed = ledger.lost(folder.path()).len();
    assert_eq!(missed, 2);
    trial::measured(&format!(
        "{rounds} rounds, {acknowledged} acknowledged, 0 lost, 0 doubled, `integrity_check` ok; of 2 deleted {missed} missed"
    ));
}

/// Writes one after the other until the service is gone, noting what it acknowledges.
fn write(address: &str, path: &str, field: &str, name: &str, key: &str, ledger: &Ledger) {
    let Ok(mut stream) = TcpStream::connect(address) else { return };
    for n in 0.. {
        let text = format!("{name}-{n}");
        let body = format!(r#"{{"{field}":"{text}","categoryId":1}}"#);
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let Some(answer) = exchange(&mut stream, request.as_bytes()) else { return };
        assert!(answer.starts_with("HTTP/1.1 201") || answer.starts_with("HTTP/1.1 202"), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let id = body["id"].to_string();
        assert_eq!(ledger.0.lock().unwrap().insert(text, id), None);
    }
}

/// Sends a request and reads its answer whole; nothing where the service went away in between.
pub fn exchange(stream: &mut TcpStream, request: &[u8]) -> Option<String> {
    stream.write_all(request).ok()?;
    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let read = stream.read(&mut chunk).ok().filter(|read| *read > 0)?;
        answer.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() >= length.parse().unwrap() {
                return Some(text.into_owned());
            }
        }
    }
}

impl Ledger {
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// An animal and a message.
    fn one_of_each(&self) -> [String; 2] {
        let acknowledged = self.0.lock().unwrap();
        [false, true].map(|message| {
            acknowledged.iter().find(|(_, id)| id.contains("msg_") == message).expect("there is one").0.clone()
        })
    }

    /// What was acknowledged and is not there, or not as it was told. Reads the file as any SQLite program would.
    fn lost(&self, data_dir: &Path) -> Vec<String> {
        let conn = Connection::open(data_dir.join("petstore.db")).unwrap();
        let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
        let mut there = HashMap::new();
        let rows = "SELECT name, CAST(id AS TEXT) FROM pets
                    UNION ALL SELECT message, '\"msg_' || lower(hex(id)) || '\"' FROM messages";
        let mut rows = conn.prepare(rows).unwrap();
        let rows = rows.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).unwrap();
        for (text, id) in rows.map(Result::unwrap) {
            assert_eq!(there.insert(text.clone(), id), None, "{text} is there twice");
        }
        let acknowledged = self.0.lock().unwrap();
        acknowledged.iter().filter(|(text, id)| there.get(*text) != Some(id)).map(|(text, _)| text.clone()).collect()
    }
}

/// The seed of this run: from the environment, or new.
pub fn seed() -> u64 {
    let given = std::env::var("PETSTORE_TEST_SEED").ok();
    given.map_or_else(
        || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 | 1,
        |seed| seed.parse().expect("PETSTORE_TEST_SEED is a number"),
    )
}

/// xorshift64 (Marsaglia, 2003): enough to spread moments.
pub fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
