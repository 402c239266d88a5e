//! Promise 6: concurrent requests with one idempotency key have one effect.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use testkit::{Response, Server, Shop, Stop, trial};
use verification::FakeClock;

use crate::keyed::{Operation, assert_effects_are_single, effects};

/// Number of concurrent requests with one key.
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
    let texts: Vec<_> =
        (0..keys).map(|n| Operation::of(n).text(&services[0], &shop.key, &format!("text-{n}"))).collect();
    let together = Barrier::new(CLIENTS);
    let send = |client: usize, n: usize| {
        together.wait();
        let service = &services[client % services.len()];
        Operation::of(n).send_until_settled(service, &shop.key, &format!("key-{n}"), &texts[n])
    };
    // Each key has threads of its own, because those of a failed request would be missing at the next barrier.
    let send_at_once = |n: usize| -> Vec<Response> {
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || send(client, n))).collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        })
    };
    let (stop, mut jumps) = (Stop::new(), 0);
    let responses: Vec<_> = thread::scope(|scope| {
        let _stop = stop.on_drop();
        scope.spawn(|| {
            for time in ["+2d", "+0", "-1d", "+0"].iter().cycle().take_while(|_| !stop.is_requested()) {
                clock.set(time);
                jumps += 1;
                thread::sleep(Duration::from_millis(20));
            }
        });
        (0..keys).map(send_at_once).collect()
    });
    for (n, responses) in responses.iter().enumerate() {
        for response in responses {
            assert_eq!(response.status(), Operation::of(n).status(), "key {n}: {response:?}");
            assert_eq!(response.body, responses[0].body, "key {n}");
        }
        let executed = responses.iter().filter(|response| !response.is_replayed()).count();
        // In a short run, the response may have been lost to a 503.
        assert!(executed == 1 || executed == 0 && !trial::is_full(), "key {n}: {executed}");
    }
    assert_effects_are_single(&shop.database, keys);
    trial::measured(&format!(
        "{keys} keys, {CLIENTS} requests at once over {} processes, {jumps} jumps of their clock meanwhile: 1 row each",
        services.len()
    ));

    // Control: without the key, each of as many requests has its effect.
    for service in services.iter().cycle().take(CLIENTS) {
        assert_eq!(service.create_pet(&shop.key, "without").status(), 201);
    }
    assert_eq!(effects(&shop.database)["without"], CLIENTS);
}
