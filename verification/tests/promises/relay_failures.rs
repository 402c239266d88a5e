//! Endpoints that fail, and messages that an endpoint rejects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use testkit::endpoint::reply;
use testkit::{Endpoint, Process, RelayedShop, Signal, TIMEOUT, within};

#[test]
fn rejected_message_does_not_delay_others() {
    let hooked = RelayedShop::on_sqlite();
    // Redirects are not followed. 410 is a rejection like others, but logged as an error.
    let endpoint = Endpoint::start(|delivery, out| {
        let statuses = ["400 Bad Request", "404 Not Found", "410 Gone", "302 Found"];
        match statuses.iter().find(|status| delivery.has(&format!("bad {}", &status[..3]))) {
            Some(status) => reply(out, status, "location: /elsewhere\r\nretry-after: 1\r\n"),
            None => reply(out, "200 OK", ""),
        }
    });
    let server = hooked.serve(&endpoint);
    for status in [400, 404, 410, 302] {
        hooked.shop.send(&server, &format!("bad {status}"));
        // Each cause is logged when it appears.
        let why = match status {
            410 => server.logged("the endpoint is gone, messages stay queued; retrying"),
            _ => server.logged("cannot relay messages, they stay queued; retrying"),
        };
        assert!(why["why"].to_string().contains(&format!("status {status}")), "{why}");
        assert_eq!(why["level"], if status == 410 { "ERROR" } else { "WARN" });
    }

    hooked.shop.send_numbered(&server, "good", 50);

    // Less than the shortest delay.
    within(TIMEOUT, "relaying", || hooked.waiting() == 4);
    // Longer than several rounds.
    thread::sleep(Duration::from_secs(3));
    let deliveries = endpoint.arrived(54);
    assert!(deliveries.iter().all(|delivery| delivery.head[0] == "POST /hook HTTP/1.1"));
    let log = server.end_by(Signal::TERM).log();
    assert!(!log.contains("again") && !log.contains("WARN"), "{log}");
}

#[test]
fn retry_ends_delays_and_discard_gives_up() {
    for hooked in RelayedShop::on_every_database() {
        let is_up = Arc::new(AtomicBool::new(false));
        let up = Arc::clone(&is_up);
        let endpoint = Endpoint::start(move |_, out| {
            reply(out, if up.load(Ordering::SeqCst) { "200 OK" } else { "410 Gone" }, "")
        });
        let server = hooked.serve(&endpoint);
        hooked.shop.send_numbered(&server, "message", 4);
        within(TIMEOUT, "the first attempts", || endpoint.deliveries().len() == 4);
        let ids = endpoint.deliveries().iter().map(|it| it.id().to_owned()).collect::<Vec<_>>();
        let run = |arguments: &str| Process::start(&mut hooked.shop.database.petstore(arguments)).end();

        let refused = run(&format!("messages discard {}", ids[0]));
        assert!(refused.code == Some(1) && refused.stderr.contains("confirm with --yes"), "{refused:?}");
        assert_eq!(run(&format!("messages discard {} --yes", ids[0])).code, Some(0));
        assert_eq!(hooked.waiting(), 3);
        assert!(run("audit").stdout.contains("message.discard"));
        is_up.store(true, Ordering::SeqCst);
        assert_eq!(run(&format!("messages retry {}", ids[1])).code, Some(0));
        // Less than the shortest delay.
        within(Duration::from_secs(50), "the retry", || hooked.waiting() == 2);
        assert_eq!(run("messages retry --all").code, Some(0));
        within(Duration::from_secs(50), "the retry", || hooked.waiting() == 0);
        let unknown = run(&format!("messages retry {}", ids[0]));
        assert!(
            unknown.code == Some(1) && unknown.stderr.contains("not all of these messages are waiting"),
            "{unknown:?}"
        );
        server.end_by(Signal::TERM);
    }
}

#[test]
fn slow_response_delays_no_other_message() {
    let hooked = RelayedShop::on_sqlite();
    let is_ending = Arc::new(AtomicBool::new(false));
    let ending = Arc::clone(&is_ending);
    let endpoint = Endpoint::start(move |delivery, out| {
        while delivery.has("slow") && !ending.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(10));
        }
        reply(out, "200 OK", "")
    });
    let server = hooked.serve(&endpoint);
    hooked.shop.send(&server, "slow");
    endpoint.arrived(1);

    hooked.shop.send_numbered(&server, "quick", 40);

    within(TIMEOUT, "relaying", || hooked.waiting() == 1);
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        is_ending.store(true, Ordering::SeqCst);
    });
    let log = server.end_by(Signal::TERM).log();
    assert_eq!((hooked.waiting(), endpoint.deliveries().len(), log.contains("WARN")), (0, 41, false), "{log}");
}

#[test]
fn message_that_fails_the_endpoint_does_not_stop_others() {
    let hooked = RelayedShop::on_sqlite();
    let endpoint = Endpoint::start(|delivery, out| {
        if delivery.has("crash") {
            return Err(std::io::ErrorKind::Other.into());
        }
        reply(out, if delivery.has("poison") { "500 Internal Server Error" } else { "200 OK" }, "")
    });
    let server = hooked.serve(&endpoint);
    // More than are delivered at once.
    for n in 0..20 {
        hooked.shop.send(&server, &format!("poison {n}"));
        hooked.shop.send(&server, &format!("crash {n}"));
    }

    hooked.shop.send_numbered(&server, "good", 10);

    within(TIMEOUT, "relaying", || hooked.waiting() == 40);
    server.end_by(Signal::TERM);
}

/// Returns the time between the first two deliveries to an endpoint whose first response has this status and headers.
fn pause_after(status: &'static str, headers: &'static str) -> Duration {
    let hooked = RelayedShop::on_sqlite();
    let is_first = AtomicBool::new(true);
    let endpoint = Endpoint::start(move |_, out| match is_first.swap(false, Ordering::SeqCst) {
        true => reply(out, status, headers),
        false => reply(out, "200 OK", ""),
    });
    let server = hooked.serve(&endpoint);
    hooked.shop.send(&server, "first");
    within(TIMEOUT, "the failure", || server.metric("petstore_relay_failures_total") == 1.0);
    // Waits as well, although nothing is wrong with it.
    hooked.shop.send(&server, "second");
    within(TIMEOUT, "the second delivery", || endpoint.deliveries().len() > 1);
    hooked.shop.assert_nothing_waits();
    assert_eq!(server.metric("petstore_relay_failures_total"), 1.0);
    server.end_by(Signal::TERM);
    let deliveries = endpoint.deliveries();
    deliveries[1].at - deliveries[0].at
}

#[test]
fn failure_pauses_the_endpoint() {
    let cases = [
        ("503 Service Unavailable", "", 1),
        ("500 Internal Server Error", "retry-after: soon\r\n", 1),
        ("429 Too Many Requests", "", 1),
        ("429 Too Many Requests", "retry-after: 6\r\n", 6),
        ("503 Service Unavailable", "retry-after: 6\r\n", 6),
        ("503 Service Unavailable", "retry-after: Thu, 01 Jan 1970 00:00:00 GMT\r\n", 1),
    ];
    let pauses = cases.map(|case| (case, thread::spawn(move || pause_after(case.0, case.1))));
    for ((status, headers, shortest), pause) in pauses {
        let pause = pause.join().unwrap();
        assert!(pause.as_secs() >= shortest, "{status} {headers}: {pause:?}");
    }
}

#[test]
fn dead_endpoint_is_tried_less_and_less() {
    let hooked = RelayedShop::on_sqlite();
    let endpoint = Endpoint::start(|_, out| reply(out, "503 Service Unavailable", ""));
    let server = hooked.serve(&endpoint);
    hooked.shop.send_numbered(&server, "message", 100);

    within(TIMEOUT, "an attempt", || !endpoint.deliveries().is_empty());
    thread::sleep(Duration::from_secs(10));

    // At 0 s, and after pauses of 1 to 2, 2 to 4 and 4 to 8 s; 16 at once.
    let deliveries = endpoint.deliveries();
    let deliveries = deliveries.iter().filter(|delivery| delivery.at - deliveries[0].at < Duration::from_secs(10));
    assert!(deliveries.clone().count() <= 4 * 16, "{deliveries:?}");
    assert_eq!(hooked.waiting(), 100);
    assert_eq!(server.end_by(Signal::TERM).code, Some(0));
}
