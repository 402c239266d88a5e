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
    // A busy machine may take longer than the relay waits for a response.
    assert!((0..5).any(|_| others_are_relayed_beside_a_slow_response()), "the slow response was given up");
}

/// Returns false if the relay did not wait for the end of the slow response.
fn others_are_relayed_beside_a_slow_response() -> bool {
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
    within(TIMEOUT, "the slow delivery", || !endpoint.deliveries().is_empty());

    hooked.shop.send_numbered(&server, "quick", 40);

    within(TIMEOUT, "relaying", || hooked.waiting() == 1);
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        is_ending.store(true, Ordering::SeqCst);
    });
    let ended = server.end_by(Signal::TERM);
    if ended.stderr.contains("no response within 10s") {
        return false;
    }
    let log = ended.log();
    assert_eq!((hooked.waiting(), endpoint.deliveries().len(), log.contains("WARN")), (0, 41, false), "{log}");
    true
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
    for n in 0..10 {
        hooked.shop.send(&server, &format!("poison {n}"));
        hooked.shop.send(&server, &format!("crash {n}"));
    }

    hooked.shop.send_numbered(&server, "good", 10);

    within(TIMEOUT, "relaying", || hooked.waiting() == 20);
    server.end_by(Signal::TERM);
}
