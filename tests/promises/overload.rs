//! Promises 17 and 18: load is held, and more than there is room for is refused early instead of making all wait.
//!
//! For the figures, the service has one core and the clients the other: `taskset -c 1` before the test leaves it the
//! first. In the suite nothing is timed: machines there are busy with other tests.

use std::process::Command;
use std::thread;
use std::time::Duration;
use testkit::load::{Outcome, Request, percentile};
use testkit::trial::{self, is_full, rounds};
use testkit::{Database, Load, SERVE, Server, within};

/// A service with a thousand animals; on a core of its own where figures are wanted.
struct Loaded {
    service: Server,
    key: String,
    _folder: tempfile::TempDir,
}

impl Loaded {
    fn start(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::folder(folder.path());
        let key = database.make_key();
        let animals: String = (0..1_100).map(|n| format!("{{\"name\":\"animal {n}\",\"categoryId\":{n}}}\n")).collect();
        let file = folder.path().join("animals");
        std::fs::write(&file, animals).unwrap();
        assert!(database.petstore(&format!("pets import {}", file.display())).status().unwrap().success());
        let plain = database.petstore("x");
        let mut command = Command::new(if is_full() { "taskset" } else { "env" });
        command.args(if is_full() { &["-c", "0"][..] } else { &[] }).arg(plain.get_program());
        command.args(SERVE.split(' ')).args(more.split_whitespace());
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Self { service: Server::start(command), key, _folder: folder }
    }

    fn load(&self, request: Request, clients: usize, seconds: f64) -> Load {
        let (address, key) = (self.service.store.clone(), self.key.clone());
        Load { address, key, clients, request, time: Duration::from_secs_f64(seconds), rate: None, obeys: false }
    }

    /// What so many clients get in a second who ask again as soon as they are answered.
    fn peak(&self, request: Request, clients: usize) -> f64 {
        let seconds = if is_full() { 5.0 } else { 1.0 };
        self.load(request, clients, 1.0).run();
        // Those of before leave first.
        thread::sleep(Duration::from_millis(500));
        let outcome = self.load(request, clients, seconds).run();
        assert_eq!((outcome.failed.len(), outcome.refused.len()), (0, 0), "{:?}", outcome.failed);
        outcome.goodput()
    }
}

#[test]
fn four_fifths_of_the_peak_are_sustained() {
    let loaded = Loaded::start("");
    if is_full() {
        // The writer's cache of pages has a bound too, and takes one and a half million animals to get there.
        let filled = loaded.load(Load::creates, 64, 60.0).run();
        let (failed, created) = (filled.failed.first(), filled.accepted.len());
        assert!(failed.is_none() && created > 1_500_000, "{created} animals, {failed:?}");
    }
    let (mix, clients): (Request, _) = (Load::lists_and_creates, 256);
    let crowded = loaded.peak(mix, clients);
    let (peak, share) =
        if is_full() { (loaded.load(mix, clients, 10.0).most_kept_up(crowded * 1.2), 0.8) } else { (crowded, 0.2) };
    let rate = peak * share;
    let seconds = f64::from(rounds(2));
    let load = Load { rate: Some(rate), ..loaded.load(mix, clients, seconds) };
    let running = load.start();
    // The other caches fill, up to their bounds, before memory is compared.
    thread::sleep(Duration::from_secs_f64(seconds / 4.0));
    let early = loaded.service.memory();
    let outcome = running.join().unwrap();
    let late = loaded.service.memory();
    assert_eq!((outcome.failed.len(), outcome.refused.len()), (0, 0), "{:?}", &outcome.failed.first());
    assert!(!outcome.accepted.is_empty());
    let (asked, missed) = (outcome.accepted.len(), outcome.missed);
    if is_full() {
        assert!(late.abs_diff(early) <= early / 10, "{early} bytes became {late}");
        assert!(outcome.kept_up(), "{missed} requests were not asked, since an answer before was late: {asked} were");
    }
    trial::measured(&format!(
        "{seconds} s at {rate:.0} a second (peak {peak:.0}): {asked} answers, 0 errors, {missed} not asked since an \
         answer before was late, p99 {:?}, {} MiB became {} MiB",
        percentile(&outcome.accepted, 99),
        early >> 20,
        late >> 20
    ));
}

#[test]
fn three_times_the_peak_of_lists_is_shed() {
    let (outcome, peak) = overload("lists", Load::lists, "", false);
    assert_shed(&outcome, peak);
}

#[test]
fn three_times_the_peak_of_creates_is_shed() {
    let (outcome, peak) = overload("creates", Load::creates, "", false);
    assert_shed(&outcome, peak);
}

/// More clients than there are connections for: those too many are told so at once, and the others are served.
#[test]
fn excess_connections_are_rejected() {
    let (outcome, peak) = overload("lists with few connections", Load::lists, few_connections(), true);
    assert!(!outcome.refused.is_empty(), "nobody was turned away");
    assert_shed(&outcome, peak);
}

/// Clients that come back at once are turned away at a pace that leaves the others their service.
#[test]
fn impatient_clients_do_not_slow_others() {
    let what = "lists with few connections, without minding `Retry-After`";
    let (outcome, peak) = overload(what, Load::lists, few_connections(), false);
    assert!(!outcome.refused.is_empty(), "nobody was turned away");
    if is_full() {
        assert!(outcome.goodput() >= 0.8 * peak, "goodput fell");
    }
}

/// Fewer than there are clients, and more than their peak is measured with.
fn few_connections() -> &'static str {
    if is_full() { "--max-connections 1000" } else { "--max-connections 150" }
}

fn assert_shed(outcome: &Outcome, peak: f64) {
    if is_full() {
        let refused = percentile(&outcome.refused, 99);
        assert!(outcome.goodput() >= 0.8 * peak, "goodput fell");
        assert!(refused <= Duration::from_millis(100), "refusals took {refused:?}");
    }
}

fn overload(what: &str, request: Request, more: &str, obeys: bool) -> (Outcome, f64) {
    let loaded = Loaded::start(more);
    let seconds = if is_full() { f64::from(rounds(10)) } else { 2.0 };
    // The peak is that of as many connections, since each costs the machine's caches something.
    let (let_in, clients) = match (is_full(), more, what) {
        (false, ..) => (64, 200),
        // No more than the writer's queue takes, or some are refused.
        (true, "", "creates") => (4_000, 6_000),
        (true, "", _) => (6_000, 6_000),
        (true, ..) => (900, 2_000),
    };
    let (peak, few) = (loaded.peak(request, let_in), loaded.peak(request, 64));
    let outcome = Load { rate: Some(3.0 * peak), obeys, ..loaded.load(request, clients, seconds) }.run();
    // Answers and refusals, and nothing else: nobody is left without a word. On a busy machine a client may come to read
    // its refusal only when the connection is gone.
    let late = |why: &&String| !is_full() && (why.contains("reset") || why.contains("Broken pipe"));
    let failed: Vec<_> = outcome.failed.iter().filter(|why| !late(why)).collect();
    assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), failed.first());
    assert!(!outcome.accepted.is_empty());
    let back = within(Duration::from_secs(if is_full() { 5 } else { 60 }), "being back to normal", || {
        let after = loaded.load(request, 64, 0.5).run();
        let enough = !is_full() || after.goodput() >= 0.8 * few;
        enough && after.refused.is_empty() && after.failed.is_empty() && !after.accepted.is_empty()
    });
    let refused = percentile(&outcome.refused, 99);
    trial::measured(&format!(
        "{what}: {:.0} a second wanted by {clients} clients: {:.0} accepted (peak {peak:.0} with as many connections, \
         {few:.0} with 64) in p50 {:?}, p99 {:?}; {} refused in p99 {refused:?}; normal after {back:?}; {} MiB",
        outcome.offered(),
        outcome.goodput(),
        percentile(&outcome.accepted, 50),
        percentile(&outcome.accepted, 99),
        outcome.refused.len(),
        loaded.service.memory() >> 20,
    ));
    (outcome, peak)
}
