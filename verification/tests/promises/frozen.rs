//! Promise 39 on a frozen file system, which blocks every thread that uses the database: the operations listener responds,
//! and SIGTERM ends the process.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Database, Killed, Process, Request, Shop, TIMEOUT, trial, within};
use verification::trace::attach;

use crate::blocked::{Service, health_limit, stop_limit};

/// Processors that a process may use. With a single one, its workers are a runtime of another kind.
const PROCESSORS: [&str; 2] = ["0", "0,1"];

/// Number of rounds of health checks on a frozen file system.
const CHECKS: u32 = 2;

/// Time after which a listener that does not respond is blocked.
const BLOCKED: Duration = Duration::from_millis(300);

#[test]
fn frozen_file_system_stalls_no_health_check_and_no_stop() {
    let rounds = trial::rounds(1);
    let (mut slowest, mut longest) = (Duration::ZERO, Duration::ZERO);
    for _ in trial::counted(rounds) {
        thread::scope(|scope| {
            let checks = PROCESSORS.map(|processors| scope.spawn(|| slowest_check(processors)));
            let stops = PROCESSORS.map(|processors| scope.spawn(|| time_to_end(processors)));
            checks.into_iter().for_each(|check| slowest = slowest.max(check.join().unwrap()));
            stops.into_iter().for_each(|stop| longest = longest.max(stop.join().unwrap()));
        });
    }
    trial::measured(&format!(
        "{rounds} rounds on a file system that does not respond, with one worker and with two: the operations listener \
         responds within {slowest:?} and is ready afterwards; the end within {longest:?} of SIGTERM"
    ));
}

/// Returns the time of the slowest health check.
fn slowest_check(processors: &str) -> Duration {
    let (service, frozen) = start_and_freeze(processors);
    let slowest = (0..CHECKS).map(|_| check(&service)).max().unwrap();
    assert!(is_blocked(&service), "all workers are blocked until the end");
    drop(frozen);
    within(TIMEOUT, "recovery", || status(&service, "/readyz") == 200);
    service.work();
    slowest
}

/// Returns the time from SIGTERM to the end.
fn time_to_end(processors: &str) -> Duration {
    let (mut service, frozen) = start_and_freeze(processors);
    let took = service.terminate(stop_limit()).unwrap();
    drop(frozen);
    assert!(service.process.ended(TIMEOUT).success());
    took
}

fn start_and_freeze(processors: &str) -> (Service, Killed) {
    let Shop { database, key } = Shop::on_sqlite();
    let mut taskset = Command::new("taskset");
    taskset.args(["--cpu-list", processors]);
    let mut service = Service::start(&database.clone().wrapped_by(&taskset), "serve", |_| {});
    service.key = Some(key);
    service.work();
    let frozen = freeze(&service.process, &database);
    block_workers(&service);
    (service, frozen)
}

/// Control: blocks all workers, so that a public listener does not respond.
fn block_workers(service: &Service) {
    within(TIMEOUT, "blocking all workers", || {
        // Each check of the database blocks a worker.
        let _ = service.send(service.operations, Request::new(service.operations, "GET", "/readyz"), health_limit());
        is_blocked(service)
    });
}

fn is_blocked(service: &Service) -> bool {
    service.send(service.store, Request::new(service.store, "GET", "/livez"), BLOCKED).is_err()
}

/// Sends every health check to the operations listener. Returns the time of the slowest.
fn check(service: &Service) -> Duration {
    let times = [("/livez", 200), ("/readyz", 503), ("/metrics", 200)].map(|(path, expected)| {
        let began = Instant::now();
        assert_eq!(status(service, path), expected, "{path}");
        began.elapsed()
    });
    times.into_iter().max().unwrap()
}

fn status(service: &Service, path: &str) -> u16 {
    let request = Request::new(service.operations, "GET", path);
    service.send(service.operations, request, health_limit()).unwrap().status()
}

/// Freezes a file system: strace holds every thread that calls it with a file of the database. `fsfreeze` would need root
/// privileges, and would stop other programs too. Thaws on drop: the kernel releases the threads when strace is killed. On
/// SIGINT, strace would wait for the calls of a process that has ended.
fn freeze(process: &Process, database: &Database) -> Killed {
    let files = ["petstore.db", "petstore.db-wal", "petstore.db-shm"];
    let frozen = Killed(attach(process, database, &files, "%file,%desc", "delay_enter=600s"));
    let threads = format!("/proc/{}/task", process.pid());
    within(TIMEOUT, "freezing", || fs::read_dir(&threads).unwrap().all(|thread| is_traced(&thread.unwrap())));
    frozen
}

fn is_traced(thread: &fs::DirEntry) -> bool {
    let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
    !status.contains("TracerPid:\t0\n")
}
