//! Promise 2: the sync comes before the answer.

use std::collections::HashMap;
use std::path::Path;
use testkit::writers::Mix;
use testkit::{Database, Ledger, TIMEOUT, Writers, trial, within};

use crate::trace::{self, Call, Disk};

/// How many answers a trace has at most: it is held in memory.
const AT_ONCE: u32 = 1_000;

const KIND: Mix = Mix { clients: 8, ..Mix::MIXED };

/// How often the sync was where, seen from an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Order {
    pub before: u32,
    /// Later, or never.
    pub not_before: u32,
}

#[test]
fn sync_precedes_the_response() {
    let answers = trial::rounds(300);
    let mut traces = 0;
    let mut order = Order::default();
    while order.before < answers {
        let wanted = AT_ONCE.min(answers - order.before);
        traces += 1;
        let found = observe(wanted, Disk::Honest);
        assert_eq!(found.not_before, 0, "answers that came before their sync: {found:?}");
        order.before += found.before;
        println!("{} of {answers} answers came after their sync", order.before);
    }
    let control = observe(50, Disk::Lying);
    assert_eq!(control.before, 0, "syncs that were not carried out count for nothing: {control:?}");
    trial::measured(&format!(
        "{} answers in {traces} traces, {} out of order; where syncs are not carried out, {} of {}",
        order.before, order.not_before, control.not_before, control.not_before
    ));
}

/// Traces a service until so many writes are answered.
fn observe(answers: u32, disk: Disk) -> Order {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(&folder.path().join("store"));
    let (key, ledger, file) = (database.make_key(), Ledger::default(), folder.path().join("trace"));
    let mut service = database.serve_by(trace::recorder(&file, disk));
    let load = Writers::start(&service, &key, &ledger, "sync", KIND);
    within(TIMEOUT * 4, "answering", || ledger.acknowledged() >= answers as usize);
    load.stop();
    service.stop();
    let found = order(&trace::read(&file, service.pid()), &folder.path().join("store/petstore.db-wal"));
    assert_eq!(found.before + found.not_before, ledger.acknowledged() as u32, "the trace has every answer");
    assert!(ledger.unavailable() == 0, "{ledger}");
    found
}

/// Holds each answer against the sync of the commit that has what it acknowledges.
pub fn order(calls: &[Call], wal: &Path) -> Order {
    let syncs: Vec<_> = calls.iter().filter(|call| call.is_sync() && call.file == wal).collect();
    let committed = commits(calls, wal);
    let mut order = Order::default();
    for answer in calls {
        let Some((name, _)) = answer.acknowledged() else { continue };
        let written = committed.get(&name);
        let synced = |written: &usize| {
            syncs.iter().any(|sync| sync.begun > *written && sync.ended.is_some_and(|ended| ended < answer.begun))
        };
        match written.is_some_and(synced) {
            true => order.before += 1,
            false => order.not_before += 1,
        }
    }
    order
}

/// For each name, where the commit that brought it was written out to its last byte.
///
/// The WAL is a row of frames, each a head of 24 bytes and a page. Of a commit's frames the last has the size of the
/// database in its head, and the others have nothing there (sqlite.org/fileformat2.html, section 4.1).
fn commits(calls: &[Call], wal: &Path) -> HashMap<String, usize> {
    let mut committed = HashMap::new();
    let (mut waiting, mut last_of_commit) = (Vec::new(), false);
    for write in calls.iter().filter(|call| call.name == "pwrite64" && call.file == wal) {
        if write.data.len() == 24 {
            last_of_commit = write.data[4..8] != [0; 4];
        } else if write.data.len() > 32 {
            waiting.extend(names(&write.data));
            if last_of_commit {
                let end = write.ended.unwrap_or(usize::MAX);
                for name in waiting.drain(..) {
                    // Later commits write the page again.
                    committed.entry(name).or_insert(end);
                }
            }
        }
    }
    committed
}

/// The names of our writes within a page: `sync-`, the client, the number, and a semicolon.
fn names(page: &[u8]) -> Vec<String> {
    let starts = page.windows(5).enumerate().filter(|(_, window)| *window == b"sync-");
    let name = |(start, _): (usize, &[u8])| {
        let length = page[start..].iter().position(|byte| *byte == b';')? + 1;
        String::from_utf8(page[start..start + length].to_vec()).ok()
    };
    starts.filter_map(name).collect()
}
