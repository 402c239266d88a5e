//! `--relay`: queued messages reach a web server. `verification/tests/promises/relay_failures.rs` has failing and hostile ones.

mod database;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use testkit::endpoint::{Delivery, reply};
use testkit::relayed::{RelayedShop, SECRET};
use testkit::{Certificate, Endpoint, Folder, Server, Signal, TIMEOUT, eventually, within};

const OTHER_SECRET: &str = "whsec_3cEaQAtTBPmMpZQtBgQKjzJ4Xh1FmEKvnUhEeDl0/w4=";

/// Returns whether a secret is that of one of the signatures.
fn is_signed(delivery: &Delivery, secret: &str) -> bool {
    let key = STANDARD.decode(&secret["whsec_".len()..]).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    let signed = format!("{}.{}.{}", delivery.id(), delivery.header("webhook-timestamp"), delivery.body);
    mac.update(signed.as_bytes());
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    delivery.header("webhook-signature").split(' ').any(|signature| signature == expected)
}

#[test]
fn message_arrives_as_a_signed_event() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let began = now();
    for hooked in RelayedShop::on_every_database() {
        let endpoint = Endpoint::acknowledging();
        let server = hooked.serve(&endpoint);

        let sent: Value = hooked.shop.send(&server, r#"ß🦊\u2028\n\"\\"#).json();

        let delivery = endpoint.arrived(1).remove(0);
        assert_eq!(delivery.head[0], "POST /hook HTTP/1.1");
        assert_eq!(delivery.header("host"), endpoint.address.to_string());
        assert_eq!((delivery.header("content-type"), delivery.header("accept")), ("application/json", "*/*"));
        assert_eq!(delivery.header("petstore-account"), "1");
        assert!(delivery.header("user-agent").starts_with("petstore/"), "{delivery:?}");
        assert_eq!(delivery.id(), sent["id"]);
        let event: Value = serde_json::from_str(&delivery.body).unwrap();
        assert_eq!(event, json!({"type": "message.created", "timestamp": sent["createdAt"], "data": sent}));
        assert!((began..=now()).contains(&delivery.header("webhook-timestamp").parse().unwrap()), "{delivery:?}");
        assert!(is_signed(&delivery, SECRET) && !is_signed(&delivery, OTHER_SECRET), "{delivery:?}");
        hooked.shop.assert_nothing_waits();
        assert_eq!(hooked.shop.messages("--state sent").len(), 1);
        within(TIMEOUT, "counting it", || server.metric("petstore_messages_relayed_total") == 1.0);
        assert_eq!(server.metric("petstore_relay_active"), 1.0);
        assert_eq!(server.metric("petstore_relay_failures_total"), 0.0);
        let acknowledged = server.metric("petstore_relay_last_acknowledgement_timestamp_seconds");
        assert!((began..=now()).contains(&(acknowledged as u64)), "{acknowledged}");
        let ended = server.end_by(Signal::TERM);
        assert_eq!(ended.code, Some(0));
        assert!(!ended.log().contains("WARN"), "{ended:?}");
    }
}

#[test]
fn deliveries_of_an_account_share_fourteen_connections() {
    let hooked = RelayedShop::on_sqlite();
    let (running, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let endpoint = Endpoint::start(move |_, out| {
        seen.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // The first ones wait for each other, and for one too many.
        within(TIMEOUT, "fourteen deliveries at once", || seen.load(Ordering::SeqCst) >= 14);
        thread::sleep(Duration::from_millis(30));
        running.fetch_sub(1, Ordering::SeqCst);
        reply(out, "200 OK", "")
    });
    let server = hooked.shop.database.serve();
    hooked.shop.send_numbered(&server, "message", 200);
    server.end_by(Signal::TERM);

    let server = hooked.serve(&endpoint);

    endpoint.arrived(200);
    hooked.shop.assert_nothing_waits();
    // Two more are kept for other accounts.
    assert_eq!((most.load(Ordering::SeqCst), endpoint.connections()), (14, 14));
    server.end_by(Signal::TERM);
}

#[test]
fn messages_wait_while_the_endpoint_is_down() {
    for hooked in RelayedShop::on_every_database() {
        let mut endpoint = Endpoint::acknowledging();
        let server = hooked.serve(&endpoint);
        hooked.shop.send(&server, "before");
        endpoint.arrived(1);
        endpoint.kill();

        hooked.shop.send_numbered(&server, "meanwhile", 5);
        server.logged("cannot relay messages, they stay queued; retrying");
        within(TIMEOUT, "being ready", || server.get("/readyz", "").status() == 200);
        assert_eq!(hooked.waiting(), 5);
        within(TIMEOUT, "counting messages", || server.metric("petstore_messages_waiting") == 5.0);
        endpoint.start_again();

        endpoint.arrived(6);
        hooked.shop.assert_nothing_waits();
        server.logged("relaying messages again");
        let log = server.end_by(Signal::TERM).log();
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "the outage is logged once: {log}");
    }
}

#[test]
fn restart_resumes_deliveries() {
    for hooked in RelayedShop::on_every_database() {
        let is_up = Arc::new(AtomicBool::new(false));
        let up = Arc::clone(&is_up);
        let endpoint = Endpoint::start(move |_, out| {
            reply(out, if up.load(Ordering::SeqCst) { "200 OK" } else { "400 Bad Request" }, "")
        });
        let server = hooked.serve(&endpoint);
        hooked.shop.send(&server, "Hello");
        endpoint.arrived(1);
        assert_eq!(hooked.waiting(), 1);
        assert_eq!(server.end_by(Signal::KILL).code, None);
        is_up.store(true, Ordering::SeqCst);

        let server = hooked.serve(&endpoint);

        // The delay of at least a minute is lost.
        let deliveries = endpoint.arrived(2);
        assert_eq!(deliveries[0].id(), deliveries[1].id());
        hooked.shop.assert_nothing_waits();
        server.end_by(Signal::TERM);
    }
}

#[test]
fn secrets_are_replaced_by_sighup() {
    let hooked = RelayedShop::on_sqlite();
    let endpoint = Endpoint::acknowledging();
    let server = hooked.serve(&endpoint);
    let signed_by = |text: &str| {
        hooked.shop.send(&server, text);
        let delivered = || endpoint.deliveries().into_iter().find(|delivery| delivery.has(text));
        let delivery = eventually(TIMEOUT, "relaying", delivered);
        [SECRET, OTHER_SECRET].map(|secret| is_signed(&delivery, secret))
    };
    assert_eq!(signed_by("at first"), [true, false]);

    hooked.folder.write("secrets", format!("{OTHER_SECRET}\n{SECRET}\n"));
    assert_eq!(signed_by("before the signal"), [true, false]);
    server.signal(Signal::HUP);
    server.logged("relay secrets reloaded");
    assert_eq!(signed_by("while both are valid"), [true, true]);

    hooked.folder.write("secrets", "whsec_s3cret");
    server.signal(Signal::HUP);
    let why = server.logged("cannot use the new relay secrets, keeping the old ones")["why"].to_string();
    assert!(why.contains("secrets must have one secret") && !why.contains("s3cret"), "{why}");
    assert_eq!(signed_by("with an unusable file"), [true, true]);

    hooked.folder.write("secrets", OTHER_SECRET);
    server.signal(Signal::HUP);
    server.logged("relay secrets reloaded");
    assert_eq!(signed_by("at last"), [false, true]);
    assert_eq!(server.end_by(Signal::TERM).code, Some(0));
}

#[test]
fn endpoint_is_verified_by_its_certificate() {
    let hooked = RelayedShop::on_sqlite();
    let authority = Certificate::of_authority(&hooked.folder.path(""), "authority");
    let certificate = authority.sign(&hooked.folder.path(""), "server", "DNS:localhost");
    let endpoint = Endpoint::with_certificate(&certificate);
    let port = endpoint.address.port();
    let serve = |host: &str, authorities: &str| {
        let mut command = hooked.command(&format!("https://{host}:{port}/hook"));
        Server::start(command.env("SSL_CERT_FILE", authorities))
    };
    let trusted = authority.file.to_str().unwrap();
    for (host, authorities, expected) in [
        ("localhost", "/etc/ssl/certs/ca-certificates.crt", "UnknownIssuer"),
        ("127.0.0.1", trusted, "not valid for name"),
        ("localhost", "/dev/null", "the system has no certificate authorities"),
    ] {
        let server = serve(host, authorities);
        hooked.shop.send(&server, "Hello");
        let why = server.logged("cannot relay messages, they stay queued; retrying")["why"].to_string();
        assert!(why.contains(expected), "{why}");
        server.end_by(Signal::TERM);
    }
    assert!(endpoint.deliveries().is_empty());

    let server = serve("localhost", trusted);

    endpoint.arrived(3);
    hooked.shop.assert_nothing_waits();
    server.end_by(Signal::TERM);
}

#[test]
fn endpoint_and_secret_are_checked_at_the_start() {
    let folder = Folder::new();
    folder.write("secrets", SECRET);
    folder.write("short", "whsec_c2hvcnQ=");
    let https = "serve --relay https://shop.example/hook";
    for (line, code, why) in [
        (https.to_owned(), 1, "give --relay-secret-file too"),
        (format!("{https} --relay-secret-file missing"), 1, "missing: No such file"),
        (format!("{https} --relay-secret-file short"), 1, "short must have one secret"),
        ("serve --relay-secret-file secrets".to_owned(), 1, "give --relay https://HOST/PATH"),
        ("serve --relay nats://ada:s3cret@127.0.0.1:4222".to_owned(), 2, "docs/relay.md"),
        ("serve --relay tls://s3cret@n1,n2:4223 --relay-secret-file secrets".to_owned(), 2, "docs/relay.md"),
        ("serve --relay https://ada:s3cret@shop.example/".to_owned(), 2, "without a user"),
        ("serve --relay https://shop.example/h\u{f6}ren?s3cret".to_owned(), 2, "in ASCII"),
    ] {
        let ended = folder.run(&line);
        assert_eq!(ended.code, Some(code), "{line}: {ended:?}");
        assert!(ended.stderr.contains(why) && !ended.stderr.contains("s3cret"), "{line}: {ended:?}");
        assert!(!folder.path("petstore-data").exists(), "a start that fails creates no database");
    }
    let check = "config check --listen 127.0.0.1:0 --relay http://shop.example/hook --relay-secret-file secrets";
    for (flags, code, why) in [
        ("--deployment staging", 1, "https://HOST/PATH"),
        ("--deployment production --relay-allow-plaintext", 1, "https://HOST/PATH"),
        ("--deployment staging --relay-allow-plaintext", 0, "unencrypted"),
    ] {
        let checked = folder.run(&format!("{check} {flags}"));
        assert!(checked.code == Some(code) && checked.stderr.contains(why), "{flags}: {checked:?}");
    }
    let shown =
        folder.succeed("config show --relay https://shop.example/hook?token=s3cret --relay-secret-file secrets");
    assert!(shown.contains(r#"relay = "https://shop.example/hook?[hidden]""#), "{shown}");
    assert!(shown.contains(r#"relay-secret-file = "secrets""#) && !shown.contains("s3cret"), "{shown}");
}

#[test]
fn secrets_are_never_logged() {
    let hooked = RelayedShop::on_sqlite();
    let endpoint = Endpoint::start(|_, out| reply(out, "503 Service Unavailable", "retry-after: 1\r\n"));
    let mut command = hooked.command(&format!("{}?token=s3cret", endpoint.url()));
    let server = Server::start(command.args(["--log-level", "trace"]));
    hooked.shop.send(&server, "Hello");
    within(TIMEOUT, "two deliveries", || endpoint.deliveries().len() >= 2);

    let log = server.end_by(Signal::TERM).stderr;

    assert_eq!(endpoint.deliveries()[0].head[0], "POST /hook?token=s3cret HTTP/1.1");
    assert!(log.contains("/hook?[hidden]"), "{log}");
    assert!(!log.contains("s3cret") && !log.contains(&SECRET[6..]) && !log.contains("v1,"), "{log}");
}
