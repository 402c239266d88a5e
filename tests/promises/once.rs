//! Promise 6: one effect for each idempotency key.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testkit::blocking::Response;
use testkit::{Server, trial};

use crate::fake_clock::FakeClock;
use crate::shop::{Operation, Shop};

/// How many requests with one key come at once.
const CLIENTS: usize = 20;

#[test]
fn concurrent_requests_execute_once_over_three_processes() {
    let shop = Shop::on_postgresql();
    let clock = FakeClock::new();
    let services = [(); 3].map(|()| clock.serve(&shop.database));
    race(&shop, &services, &clock);
}

#[test]
fn concurrent_requests_execute_once_in_the_embedded_database() {
    let shop = Shop::on_sqlite();
    let clock = FakeClock::new();
    race(&shop, &[clock.serve(&shop.database)], &clock);
}

/// Sends each request from all clients at once. The services' system clock keeps jumping: two days forward and back, a
/// day back and forward.
fn race(shop: &Shop, services: &[Server], clock: &FakeClock) {
    let keys = trial::rounds(20) as usize;
    let operation = |n: usize| Operation::ALL[n % Operation::ALL.len()];
    let texts: Vec<_> = (0..keys).map(|n| operation(n).text(&services[0], &shop.key, &format!("text-{n}"))).collect();
    let together = Barrier::new(CLIENTS);
    let ask = |client: usize, n: usize| {
        together.wait();
        if client == 0 && (n + 1).is_multiple_of(50) {
            println!("{} of {keys} keys", n + 1);
        }
        let service = &services[client % services.len()];
        operation(n).ask_until_settled(service, &shop.key, &format!("key-{n}"), &texts[n])
    };
    let (done, mut jumps) = (AtomicBool::new(false), 0);
    let answers: Vec<Vec<Response>> = thread::scope(|scope| {
        scope.spawn(|| {
            for time in ["+2d", "+0", "-1d", "+0"].iter().cycle().take_while(|_| !done.load(Ordering::Relaxed)) {
                clock.set(time);
                jumps += 1;
                thread::sleep(Duration::from_millis(20));
            }
        });
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || (0..keys).map(|n| ask(client, n)).collect())).collect();
        let answers = clients.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>();
        done.store(true, Ordering::Relaxed);
        answers.into_iter().map(Result::unwrap).collect()
    });
    for n in 0..keys {
        let answers: Vec<_> = answers.iter().map(|of_client| &of_client[n]).collect();
        for answer in &answers {
            assert_eq!(answer.status, operation(n).status(), "key {n}: {answer:?}");
            assert_eq!(answer.body(), answers[0].body(), "key {n}");
        }
        assert_eq!(answers.iter().filter(|answer| !answer.is_replayed()).count(), 1, "key {n}: who was first");
    }
    let effects = shop.effects();
    assert_eq!(effects.len(), keys);
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    trial::measured(&format!(
        "{keys} keys, {CLIENTS} requests at once over {} processes, {jumps} jumps of their clock meanwhile: 1 row each",
        services.len()
    ));

    // The control: without the key, each of as many requests has its effect.
    for service in services.iter().cycle().take(CLIENTS) {
        assert_eq!(service.create_pet(&shop.key, "without").status, 201);
    }
    assert_eq!(shop.effects()["without"], CLIENTS);
}
