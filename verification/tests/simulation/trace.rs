//! The trace of a simulation: a hash of everything that happens in it, in order. Equal hashes mean equal runs.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher};

use foldhash::fast::{FixedState, FoldHasher};
use tokio::time::Instant;

struct Trace {
    hasher: FoldHasher<'static>,
    /// A line for each event, with the simulated seconds since the first one. `None` if nobody reads them.
    story: Option<Vec<String>>,
    began: Option<Instant>,
}

thread_local!(static TRACE: RefCell<Option<Trace>> = const { RefCell::new(None) });

/// Begins the trace of this thread. With `story`, keeps a line for each event.
pub fn begin(story: bool) {
    let hasher = FixedState::with_seed(0).build_hasher();
    TRACE.set(Some(Trace { hasher, story: story.then(Vec::new), began: None }));
}

/// Returns the hash and the story.
pub fn end() -> (u64, Vec<String>) {
    let trace = TRACE.take().expect("a begun trace");
    (trace.hasher.finish(), trace.story.unwrap_or_default())
}

/// Notes an event of the disk.
pub fn note(what: &str, first: u64, second: u64) {
    note_bytes(what, first, second, &[]);
}

pub fn note_bytes(what: &str, first: u64, second: u64, bytes: &[u8]) {
    add(
        |hasher| {
            hasher.write(what.as_bytes());
            hasher.write_u64(first);
            hasher.write_u64(second);
            hasher.write(bytes);
        },
        || format!("    {what} {first} {second} ({} bytes)", bytes.len()),
    );
}

/// Notes an event of the simulated world.
pub fn note_text(what: &str, text: impl std::fmt::Display) {
    let text = text.to_string();
    add(
        |hasher| {
            hasher.write(what.as_bytes());
            hasher.write(text.as_bytes());
        },
        || format!("{what} {text}"),
    );
}

fn add(hash: impl FnOnce(&mut FoldHasher<'static>), line: impl FnOnce() -> String) {
    TRACE.with_borrow_mut(|trace| {
        let Some(trace) = trace else { return };
        hash(&mut trace.hasher);
        if let Some(story) = &mut trace.story {
            let began = trace.began.get_or_insert_with(Instant::now);
            story.push(format!("{:8.3} {}", began.elapsed().as_secs_f64(), line()));
        }
    });
}
