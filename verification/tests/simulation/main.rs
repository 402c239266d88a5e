//! Promise 41: one seed determines everything. The store, its writer, the relay, the rate limits and the key cache run on
//! one thread, in simulated time, on a disk and a network that fail as the seed decides.
//!
//! The library is the one that is released. Its edges are simulated: the files below SQLite and the system's random bytes
//! (`vfs.rs`, `disk.rs`), tokio's paused clock, the web server (`web_server.rs`), and the writer's thread, whose steps the simulation
//! makes itself (`process.rs`). turmoil and madsim simulate networks between processes; most of what can fail here is below
//! SQLite, which neither reaches.
//!
//! `world.rs` is one simulation. `plan.rs` draws its sizes and kinds of faults, `faults.rs` causes them, `machine.rs` starts
//! processes again, and clients note what they are told in `ledger.rs`. `audit.rs` compares that with the final database.

mod audit;
mod bugs;
mod client;
mod disk;
mod faults;
mod file;
mod ledger;
mod lives;
mod locks;
mod machine;
mod names;
mod neighbours;
mod plan;
mod process;
mod seeds;
mod service;
mod tally;
mod trace;
mod vfs;
mod web_server;
mod world;

use bugs::Bug;
use seeds::{Seeds, run, run_telling};
use testkit::trial;

/// Seeds within which each planted bug must be found.
const FOUND_WITHIN: u64 = 100;

#[test]
fn every_promise_holds_for_every_seed() {
    let (first, count) = (trial::seed(), u64::from(trial::rounds(100)));
    let tally = Seeds { first, count }.run_all("every_promise_holds_for_every_seed");
    trial::measured(&format!("{tally}: 0 violations"));
}

#[test]
fn same_seed_gives_the_same_trace() {
    for seed in 0..10 {
        let (once, again) = (run_telling(seed, None), run_telling(seed, None));
        let differs = once.story.iter().zip(&again.story).position(|(one, other)| one != other);
        let at = differs.map(|at| (at, &once.story[at], &again.story[at]));
        assert_eq!((once.hash, None), (again.hash, at), "seed {seed}");
        assert_ne!(once.hash, run(seed + 1, None).hash, "seed {seed}");
    }
}

#[test]
fn planted_bugs_are_found_and_replayed() {
    let mut found = Vec::new();
    for bug in Bug::ALL {
        let violated = |seed: &u64| run(*seed, Some(bug)).result.is_err();
        let seed = (0..FOUND_WITHIN).find(violated).unwrap_or_else(|| panic!("{bug:?} is not found"));
        let (once, again) = (run(seed, Some(bug)), run(seed, Some(bug)));
        assert_eq!(run(seed, None).result, Ok(()), "seed {seed} without {bug:?}");
        assert_eq!((&once.result, once.hash), (&again.result, again.hash), "{bug:?} with seed {seed}");
        let why = once.result.unwrap_err();
        println!("{bug:?}: seed {seed}: {why}");
        found.push(format!("{bug:?} by seed {seed}"));
    }
    println!("{}", found.join(", "));
}
