//! Promise 2: the sync precedes the response.

use std::collections::HashMap;
use std::path::Path;

use testkit::{Database, TIMEOUT, trial, within};
use verification::trace::{self, Call, Disk};
use verification::writers::Mix;
use verification::{Ledger, Writers};

/// Maximum number of responses in a trace, which is kept in memory.
const AT_ONCE: u32 = 1_000;

const MIX: Mix = Mix { clients: 8, ..Mix::MIXED };

/// Numbers of responses by the position of their sync.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Order {
    pub before: u32,
    /// The sync came later or never.
    pub not_before: u32,
}

#[test]
fn sync_precedes_the_response() {
    let responses = trial::rounds(300);
    let mut traces = 0;
    let mut order = Order::default();
    while order.before < responses {
        let wanted = AT_ONCE.min(responses - order.before);
        traces += 1;
        let found = observe(wanted, Disk::Honest, MIX);
        assert_eq!(found.not_before, 0, "responses before their sync: {found:?}");
        order.before += found.before;
        println!("{} of {responses} responses", order.before);
    }
    let control = observe(50, Disk::LyingFrom(1), MIX);
    assert_eq!(control.before, 0, "syncs that were not done do not count: {control:?}");
    trial::measured(&format!(
        "{} answers in {traces} traces, {} out of order; if syncs report success without being done, {} of {}",
        order.before, order.not_before, control.not_before, control.not_before
    ));
}

/// Traces a service until it has acknowledged this many writes.
pub fn observe(writes: u32, disk: Disk, mix: Mix) -> Order {
    let (database, trace) = (Database::temporary(), tempfile::NamedTempFile::new().unwrap());
    let (key, ledger) = (database.make_key(), Ledger::default());
    let mut service = database.serve_by(trace::recorder(trace.path(), disk));
    let load = Writers::start(&service, &key, &ledger, "sync", mix);
    within(TIMEOUT * 4, "acknowledgements", || ledger.acknowledged() >= writes as usize);
    load.stop();
    service.stop();
    let found = of(&database, &trace::read(trace.path(), service.pid()));
    assert_eq!(found.before + found.not_before, ledger.acknowledged() as u32, "the trace has every response");
    assert!(ledger.unavailable() == 0, "{ledger}");
    found
}

/// Compares each acknowledgement with the sync of the commit that contains its write.
pub fn of(database: &Database, calls: &[Call]) -> Order {
    let wal = database.file("petstore.db-wal");
    let syncs: Vec<_> = calls.iter().filter(|call| call.is_sync() && call.file == wal).collect();
    let committed = commits(calls, &wal);
    let mut order = Order::default();
    for response in calls {
        let Some((name, _)) = response.acknowledged() else { continue };
        let written = committed.get(&name);
        let synced = |written: &usize| {
            syncs.iter().any(|sync| sync.begun > *written && sync.ended.is_some_and(|ended| ended < response.begun))
        };
        match written.is_some_and(synced) {
            true => order.before += 1,
            false => order.not_before += 1,
        }
    }
    order
}

/// For each name, the time at which the last byte of its commit was written.
///
/// The WAL is a sequence of frames, each a header of 24 bytes and a page. The header of a commit's last frame contains the
/// size of the database, those of the others zero (sqlite.org/fileformat2.html, section 4.1).
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
                    // Later commits may write the same page.
                    committed.entry(name).or_insert(end);
                }
            }
        }
    }
    committed
}

/// The names of writes in a page: `sync-`, the client, the number, and a semicolon.
fn names(page: &[u8]) -> Vec<String> {
    let starts = page.windows(5).enumerate().filter(|(_, window)| *window == b"sync-");
    let name = |(start, _): (usize, &[u8])| {
        let length = page[start..].iter().position(|byte| *byte == b';')? + 1;
        String::from_utf8(page[start..start + length].to_vec()).ok()
    };
    starts.filter_map(name).collect()
}
