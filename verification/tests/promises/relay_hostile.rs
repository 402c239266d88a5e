//! Endpoints that break the protocol or respond slowly.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use testkit::endpoint::reply;
use testkit::{Endpoint, RelayedShop, Signal, TIMEOUT, within};

/// Size of a response that is never read to its end.
const FLOOD: usize = 64 << 20;

#[test]
fn endless_responses_are_not_read() {
    for (begin, is_acknowledged) in [
        ("HTTP/1.1 200 OK\r\nx: ", true),
        ("HTTP/1.1 200 ", false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffff\r\n", true),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", true),
        ("", false),
    ] {
        let hooked = RelayedShop::on_sqlite();
        let (told, taken) = channel();
        let endpoint = Endpoint::start(move |_, out| {
            let part = [b'x'; 65_536];
            let mut sent = 0;
            out.write_all(begin.as_bytes())?;
            while sent < FLOOD && out.write_all(&part).is_ok() {
                sent += part.len();
            }
            // The test may have ended.
            let _ = told.send(sent);
            Err(std::io::ErrorKind::Other.into())
        });
        let server = hooked.serve(&endpoint);

        hooked.shop.send(&server, "Hello");

        let taken = taken.recv_timeout(TIMEOUT).unwrap();
        assert!(taken < FLOOD, "{begin:?}: the relay read it all");
        if is_acknowledged {
            hooked.shop.assert_nothing_waits();
        } else {
            server.logged("cannot relay messages, they stay queued; retrying");
        }
        let ended = server.end_by(Signal::TERM);
        assert!(ended.code == Some(0) && !ended.stderr.contains("panicked"), "{begin:?}: {ended:?}");
    }
}

#[test]
fn status_line_acknowledges_whatever_follows() {
    let large = |line: &str, count| line.repeat(count);
    let responses = [
        format!("200 OK\r\n{}content-length: 0\r\n\r\n", large("x: 1\r\n", 8_000)),
        format!("200 OK\r\n{}\r\n", large("x: a header of some length, again and again\r\n", 20_000)),
        "200 OK\r\nx: 1,\r\n  2\r\ncontent-length: 0\r\n\r\n".into(),
        "204\r\n\r\n".into(),
        "202 Accepted\nx: 1\n\n".into(),
        "200 OK\r\nno colon\r\n\r\n".into(),
        "200 OK\r\ncontent-length: soon\r\n\r\n".into(),
        "200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}".into(),
        "200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx: 1\r\n\r\n".into(),
        "200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".into(),
        "200 OK\r\ntransfer-encoding: gzip\r\n\r\n{}".into(),
        "200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 500 Internal Server Error\r\n\r\n".into(),
        "100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n".into(),
        "200 OK\r\n".into(),
    ];
    let count = responses.len();
    let hooked = RelayedShop::on_sqlite();
    let endpoint = Endpoint::start(move |delivery, out| {
        let number = (0..count).rev().find(|n| delivery.has(&format!("message {n}\""))).unwrap();
        let response = format!("HTTP/1.1 {}", responses[number]);
        out.write_all(response.as_bytes())?;
        out.flush()?;
        // The last response has no end.
        if number + 1 == count { Err(std::io::ErrorKind::Other.into()) } else { Ok(()) }
    });
    let server = hooked.serve(&endpoint);

    hooked.shop.send_numbered(&server, "message", count);

    hooked.shop.assert_nothing_waits();
    assert_eq!(server.metric("petstore_relay_failures_total"), 0.0);
    server.end_by(Signal::TERM);
    assert_eq!(endpoint.deliveries().len(), count, "each message arrives once");
}

#[test]
fn retry_after_in_a_large_or_folded_head_is_honoured() {
    for head in [format!("{}retry-after: 3600", "x: 1\r\n".repeat(8_000)), "x: 1\r\n 2\r\nRetry-After:\r\n 3600".into()]
    {
        let hooked = RelayedShop::on_sqlite();
        let endpoint = Endpoint::start(move |_, out| {
            out.write_all(format!("HTTP/1.1 503 Unavailable\r\n{head}\r\ncontent-length: 0\r\n\r\n").as_bytes())?;
            out.flush()
        });
        let server = hooked.serve(&endpoint);
        hooked.shop.send(&server, "Hello");
        within(TIMEOUT, "the first delivery", || endpoint.deliveries().len() == 1);
        // Longer than the pause without the header.
        thread::sleep(Duration::from_secs(4));
        assert_eq!((endpoint.deliveries().len(), hooked.waiting()), (1, 1));
        server.end_by(Signal::TERM);
    }
}

#[test]
fn endless_interim_responses_end_with_the_time_limit() {
    let hooked = RelayedShop::on_sqlite();
    let endpoint = Endpoint::start(|_, out| {
        let began = Instant::now();
        while began.elapsed() < TIMEOUT {
            out.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n")?;
            // Floods only in the last second, to save work.
            if began.elapsed() < Duration::from_secs(9) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    });
    let server = hooked.serve(&endpoint);
    hooked.shop.send(&server, "Hello");

    let why = server.logged("cannot relay messages, they stay queued; retrying")["why"].to_string();

    assert!(why.contains("no response within 10s"), "{why}");
    assert_eq!(server.end_by(Signal::TERM).code, Some(0));
}

#[test]
fn slow_endpoint_stalls_neither_requests_nor_the_stop() {
    // A busy machine may take longer than the relay waits for a response.
    assert!((0..5).any(|_| others_are_relayed_beside_slow_responses()), "the slow responses had ended");
}

/// Returns false if a slow response had ended before the others were relayed.
fn others_are_relayed_beside_slow_responses() -> bool {
    let hooked = RelayedShop::on_sqlite();
    let (arrived, are_all_here) = (AtomicUsize::new(0), Arc::new((Mutex::new(false), Condvar::new())));
    let told = Arc::clone(&are_all_here);
    // A byte of the head every second.
    let endpoint = Endpoint::start(move |delivery, out| {
        if delivery.has("quick") {
            return reply(out, "200 OK", "");
        }
        if arrived.fetch_add(1, Ordering::SeqCst) == 12 {
            *told.0.lock().unwrap() = true;
            told.1.notify_all();
        }
        for byte in b"HTTP/1.1 200 OK and a long reason" {
            out.write_all(&[*byte])?;
            out.flush()?;
            thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    });
    let server = hooked.shop.database.serve();
    hooked.shop.send_numbered(&server, "slow", 13);
    hooked.shop.send_numbered(&server, "quick", 10);
    server.end_by(Signal::TERM);

    let server = hooked.serve(&endpoint);
    drop(are_all_here.1.wait_timeout_while(are_all_here.0.lock().unwrap(), TIMEOUT, |here| !*here).unwrap());

    // The fourteenth, which is the last of an account, delivers all others.
    within(TIMEOUT, "relaying", || endpoint.deliveries().iter().filter(|delivery| delivery.has("quick")).count() == 10);
    let is_in_time = server.metric("petstore_relay_failures_total") == 0.0;
    within(TIMEOUT, "readiness", || server.get("/readyz", "").status() == 200);
    let ended = server.end_by(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // Messages acknowledged meanwhile are not sent again.
    assert_eq!(hooked.waiting(), 13);
    is_in_time
}

#[test]
fn closed_idle_connection_is_no_failure() {
    let hooked = RelayedShop::on_sqlite();
    // The server announces to keep each connection, and closes it.
    let endpoint = Endpoint::start(|_, out| {
        reply(out, "200 OK", "")?;
        thread::sleep(Duration::from_millis(20));
        Err(std::io::ErrorKind::Other.into())
    });
    let server = hooked.serve(&endpoint);

    for n in 0..30 {
        hooked.shop.send(&server, &format!("message {n}"));
        thread::sleep(Duration::from_millis(15));
    }

    hooked.shop.assert_nothing_waits();
    assert_eq!(server.metric("petstore_relay_failures_total"), 0.0);
    server.end_by(Signal::TERM);
}
