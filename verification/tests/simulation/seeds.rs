//! Runs seeds, each on a thread of its own, so that nothing of one remains for the next.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use tempfile::TempDir;
use testkit::{Random, trial};

use crate::bugs::Bug;
use crate::ledger::Checked;
use crate::plan::Plan;
use crate::tally::Tally;
use crate::trace;
use crate::world::{self, Origin, World};

/// Set in the processes that run a part of the seeds.
const PART: &str = "PETSTORE_SIMULATION_PART";

/// The seed of the first database. No other simulation may have it, because it would create the same keys.
const ORIGIN_SEED: u64 = u64::MAX;

/// The number of events to print before a violation.
const TOLD: usize = 300;

/// A range of seeds.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    pub first: u64,
    pub count: u64,
}

/// The end of one simulation.
pub struct End {
    pub result: Checked,
    pub hash: u64,
    pub tally: Tally,
    /// A line for each event, if it was asked for.
    pub story: Vec<String>,
}

impl Seeds {
    /// Runs all seeds: in a full run on all cores, by a process for each, because SQLite has one generator of random
    /// numbers per process. `test` is the name of the calling test.
    pub fn run_all(self, test: &str) -> Tally {
        let cores = thread::available_parallelism().map_or(1, usize::from) as u64;
        if cores == 1 || !trial::is_full() || std::env::var_os(PART).is_some() {
            return self.run_here();
        }
        let parts = (0..cores).map(|part| {
            let (begin, end) = (self.count * part / cores, self.count * (part + 1) / cores);
            Self { first: self.first + begin, count: end - begin }
        });
        let started: Vec<_> = parts.filter(|part| part.count > 0).map(|part| part.start(test)).collect();
        let mut all = Tally::default();
        for mut part in started {
            let output = BufReader::new(part.stdout.take().expect("a pipe"));
            for line in output.lines() {
                let line = line.expect("text");
                match line.strip_prefix("tally: ") {
                    Some(tally) => all.add(&Tally::parse(tally)),
                    // The figure of all parts follows.
                    None if line.starts_with("measured: ") => {}
                    None => println!("{line}"),
                }
            }
            assert!(part.wait().expect("an exit status").success(), "see above");
        }
        all
    }

    fn start(self, test: &str) -> std::process::Child {
        Command::new(std::env::current_exe().expect("the path of this program"))
            .args([test, "--exact", "--nocapture"])
            .env("PETSTORE_SEED", self.first.to_string())
            .env("PETSTORE_ROUNDS", self.count.to_string())
            .env(PART, "")
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again")
    }

    fn run_here(self) -> Tally {
        let (mut all, every) = (Tally::default(), self.count.div_ceil(10));
        for done in 1..=self.count {
            let seed = self.first + done - 1;
            let end = run(seed, None);
            if let Err(why) = end.result {
                let story = run_telling(seed, None).story;
                // The replay of a single seed tells everything.
                let told = if self.count == 1 { story.len() } else { story.len().min(TOLD) };
                story[story.len() - told..].iter().for_each(|line| println!("{line}"));
                panic!("seed {seed}: {why}. `scripts/verify 41 --seed {seed} --rounds 1` runs it again");
            }
            all.add(&end.tally);
            if done.is_multiple_of(every) {
                println!("{done} seeds of {} from {}", self.count, self.first);
            }
        }
        if std::env::var_os(PART).is_some() {
            println!("tally: {}", all.to_line());
        }
        all
    }
}

/// Runs one seed.
pub fn run(seed: u64, planted: Option<Bug>) -> End {
    on_a_thread(seed, planted, false)
}

/// Runs one seed, and tells its events.
pub fn run_telling(seed: u64, planted: Option<Bug>) -> End {
    on_a_thread(seed, planted, true)
}

fn on_a_thread(seed: u64, planted: Option<Bug>, tells: bool) -> End {
    let plan = |random: &mut _| Plan::new(random, planted);
    simulate(seed, plan, async |world| {
        trace::begin(tells);
        let (result, tally) = world::live(world).await;
        let (hash, story) = trace::end();
        End { result, hash, tally, story }
    })
}

/// Simulates a world on the first database, on a thread of its own.
pub fn simulate<T: Send>(
    seed: u64,
    plan: impl FnOnce(&mut Random) -> Plan + Send,
    work: impl AsyncFnOnce(Rc<World>) -> T + Send,
) -> T {
    static ORIGIN: OnceLock<Origin> = OnceLock::new();
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder();
    let folder = folder.path();
    let create = async |world: Rc<World>| world.create().await;
    let origin = ORIGIN.get_or_init(|| {
        in_thread(|| world::simulate(ORIGIN_SEED, |_| Plan::quiet(), &Origin::default(), folder, create))
    });
    in_thread(|| world::simulate(seed, plan, origin, folder, work))
}

/// A folder in memory, for the files that the store looks at.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    folder.expect("a temporary folder")
}

fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
