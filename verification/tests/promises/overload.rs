//! Promises 17 and 18: load is sustained, and overload is shed early instead of making all clients wait.
//!
//! In a full run, the service has one core and the clients the other: start the test under `taskset -c 1`. Short runs
//! check no times, because the machine is busy with other tests.

use std::process::Command;
use std::thread;
use std::time::Duration;

use testkit::trial::{self, is_full, rounds};
use testkit::{Database, Server, Shop, within};
use verification::Load;
use verification::load::{NewRequest, Outcome, percentile};

/// A service with 1,100 animals, in a full run on a separate core.
struct Loaded {
    service: Server,
    key: String,
    _database: Database,
}

impl Loaded {
    fn start(flags: &str) -> Self {
        let Shop { database, key } = Shop::on_sqlite();
        let animals: String = (0..1_100).map(|n| format!("{{\"name\":\"animal {n}\",\"categoryId\":{n}}}\n")).collect();
        let file = database.file("animals");
        std::fs::write(&file, animals).unwrap();
        database.run(&format!("pets import {}", file.display()));
        let mut wrapper = Command::new(if is_full() { "taskset" } else { "env" });
        wrapper.args(if is_full() { &["-c", "0"][..] } else { &[] });
        let service = Server::start(database.petstore_by(wrapper, &format!("{} {flags}", Database::SERVE)));
        Self { service, key, _database: database }
    }

    fn load(&self, request: NewRequest, clients: usize, seconds: f64) -> Load {
        let time = Duration::from_secs_f64(seconds);
        Load { request, ..Load::new(self.service.store(), &self.key, clients, time) }
    }

    /// The goodput of clients that send the next request after each response.
    fn peak(&self, request: NewRequest, clients: usize) -> f64 {
        let (warm_up, seconds) = if is_full() { (1.0, 5.0) } else { (0.2, 0.5) };
        self.load(request, clients, warm_up).run();
        // The connections of the warm-up close first.
        thread::sleep(Duration::from_millis(500));
        let outcome = self.load(request, clients, seconds).run();
        assert_all_accepted(&outcome);
        outcome.goodput().max(100.0) // A busy disk may stall the load of a short run.
    }
}

/// In a short run, the disk may be busy for longer than a write may wait.
fn assert_all_accepted(outcome: &Outcome) {
    let refused = outcome.refused.iter().filter(|took| is_full() || **took < Duration::from_secs(5)).count();
    assert_eq!((outcome.failed.len(), refused), (0, 0), "{:?}", outcome.failed.first());
}

#[test]
fn four_fifths_of_the_peak_are_sustained() {
    let loaded = Loaded::start("");
    if is_full() {
        // The writer's page cache reaches its bound after one and a half million animals.
        let filled = loaded.load(Load::creates, 64, 60.0).run();
        let (failed, created) = (filled.failed.first(), filled.accepted.len());
        assert!(failed.is_none() && created > 1_500_000, "{created} animals, {failed:?}");
    }
    let (mix, clients): (NewRequest, _) = (Load::lists_and_creates, 256);
    let crowded = loaded.peak(mix, clients);
    let (peak, share) =
        if is_full() { (loaded.load(mix, clients, 10.0).most_kept_up(crowded * 1.2), 0.8) } else { (crowded, 0.2) };
    let rate = peak * share;
    let seconds = f64::from(rounds(2));
    let load = Load { rate: Some(rate), ..loaded.load(mix, clients, seconds) };
    let running = load.start();
    // The other caches fill up to their bounds before memory is compared.
    thread::sleep(Duration::from_secs_f64(seconds / 4.0));
    let early = loaded.service.memory();
    let outcome = running.join().unwrap();
    let late = loaded.service.memory();
    assert_all_accepted(&outcome);
    assert!(!outcome.accepted.is_empty() || outcome.late > 0);
    let (accepted, missed) = (outcome.accepted.len(), outcome.missed);
    if is_full() {
        assert!(late.abs_diff(early) <= early / 10, "{early} bytes became {late}");
        assert!(outcome.kept_up(), "{missed} requests missed, {accepted} accepted");
    }
    trial::measured(&format!(
        "{seconds} s at {rate:.0} a second (peak {peak:.0}): {accepted} answers, 0 errors, {missed} missed because a \
         response was late, p99 {:?}, {} MiB became {} MiB",
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

/// Clients beyond the connection limit are rejected at once, and the others are served.
#[test]
fn excess_connections_are_rejected() {
    let (outcome, peak) = overload("lists with few connections", Load::lists, few_connections(), true);
    assert_shed(&outcome, peak);
}

/// Clients that ignore `Retry-After` are rejected without slowing the others.
#[test]
fn impatient_clients_do_not_slow_others() {
    let name = "lists with few connections, ignoring `Retry-After`";
    let (outcome, peak) = overload(name, Load::lists, few_connections(), false);
    if is_full() {
        assert!(outcome.goodput() >= 0.8 * peak, "goodput fell");
    }
}

/// A limit below the number of clients and above the number that the peak is measured with.
fn few_connections() -> &'static str {
    if is_full() { "--max-connections 1000" } else { "--max-connections 150" }
}

fn assert_shed(outcome: &Outcome, peak: f64) {
    if is_full() {
        let refused = percentile(&outcome.refused, 99);
        assert!(outcome.goodput() >= 0.8 * peak, "goodput fell");
        assert!(refused <= Duration::from_millis(100), "rejections took {refused:?}");
    }
}

/// Runs three times the peak load. Returns its outcome and the peak.
fn overload(name: &str, request: NewRequest, flags: &str, obeys: bool) -> (Outcome, f64) {
    let loaded = Loaded::start(flags);
    let seconds = if is_full() { f64::from(rounds(10)) } else { 1.0 };
    // The peak is measured with as many connections, because each one uses processor cache.
    let (connections, clients) = match (is_full(), flags, name) {
        (false, ..) => (64, 200),
        // The writer's queue is full beyond this number.
        (true, "", "creates") => (4_000, 6_000),
        (true, "", _) => (6_000, 6_000),
        (true, ..) => (900, 2_000),
    };
    let peak = loaded.peak(request, connections);
    let few = if connections == 64 { peak } else { loaded.peak(request, 64) };
    let rejected = || loaded.service.metric("petstore_connections_refused_total{listener=\"store\"}");
    let before = rejected();
    let outcome = Load { rate: Some(3.0 * peak), obeys, ..loaded.load(request, clients, seconds) }.run();
    // Every client gets a response. On a busy machine, a client may read its rejection, or send its first request, only
    // after the connection closes.
    let late = ["reset", "Broken pipe", "closed before a response"];
    let is_late = |error: &&String| !is_full() && late.iter().any(|text| error.contains(text));
    let failed: Vec<_> = outcome.failed.iter().filter(|error| !is_late(error)).collect();
    assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), failed.first());
    assert!(!outcome.accepted.is_empty() || outcome.late > 0);
    assert!(flags.is_empty() || rejected() > before, "no client was rejected");
    let back = within(Duration::from_secs(5), "recovery", || {
        let after = loaded.load(request, 64, 0.5).run();
        let enough =
            if is_full() { after.goodput() >= 0.8 * few } else { !after.accepted.is_empty() || after.late > 0 };
        enough && after.refused.is_empty() && after.failed.is_empty()
    });
    let refused = percentile(&outcome.refused, 99);
    trial::measured(&format!(
        "{name}: {:.0} a second offered by {clients} clients: {:.0} accepted (peak {peak:.0} with as many connections, \
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
