//! TLS: renewed and unusable certificates, and public addresses that require it.

use expect_test::expect;
use testkit::{Certificate, Folder, Process, Request, Response, Server, Signal, read_response_from, soon, until};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

const TLS: &str = "--tls-cert cert.pem --tls-key cert.key";

/// A folder with `cert.pem` and `cert.key`, a certificate for this machine.
fn folder() -> (Folder, Certificate) {
    let folder = Folder::new();
    let certificate = Certificate::of_localhost(&folder.path(""), "cert");
    (folder, certificate)
}

#[tokio::test]
async fn healthcheck_uses_tls_like_the_listeners() {
    let (folder, _) = folder();
    let server = folder.serve(&format!("serve {TLS}"));
    let address = server.address("ops");
    let check = |flags: &str| folder.run(&format!("healthcheck {flags} --ops-listen {address}")).shown();
    until(async || check(TLS) == "exit 0\n").await;
    let mut by_variables = folder.command("healthcheck");
    by_variables.env("PETSTORE_TLS_CERT", "cert.pem").env("PETSTORE_OPS_LISTEN", address.to_string());
    // In a container, the environment is that of the service.
    until(async || by_variables.status().unwrap().success()).await;
    let why = "is not ready: status 400: This port requires TLS: use https://.";
    until(async || check("") == format!("exit 1\nerror: {address} {why}\n")).await;
}

#[tokio::test]
async fn new_certificate_applies_to_new_connections() {
    let (folder, first) = folder();
    let server = folder.serve(&format!("serve {TLS}"));
    let mut open = first.connect(server.address("store")).await;
    assert_is_answered(&server, &mut open).await;

    for (name, by_signal) in [("second", false), ("third", true)] {
        let next = Certificate::of_localhost(&folder.path(""), name);
        assert!(!next.is_presented(server.address("store")).await);
        next.replace(&first);
        if by_signal {
            server.signal(Signal::HUP);
        }
        until(async || next.is_presented(server.address("store")).await).await;
        server.logged("certificate reloaded");
        assert!(next.is_presented(server.address("messages")).await && next.is_presented(server.address("ops")).await);
        assert_is_answered(&server, &mut open).await;
    }
    server.signal(Signal::HUP);
    server.logged("certificate reloaded");
    assert_eq!(server.end_by(Signal::TERM).code, Some(0));
}

#[tokio::test]
async fn unusable_certificate_keeps_the_old_one() {
    const REFUSED: &str = "cannot use the new certificate, keeping the old one";
    let (folder, first) = folder();
    let server = folder.serve(&format!("serve {TLS}"));
    let other = Certificate::of_localhost(&folder.path(""), "other");
    let mut reasons = String::new();
    let mut refused = async || {
        // The check may log a reason before the signal does.
        let mut logged = std::iter::repeat_with(|| server.logged(REFUSED)["why"].as_str().unwrap().to_owned());
        let why = logged.find(|why| !reasons.contains(why)).unwrap();
        assert!(first.is_presented(server.address("store")).await, "{why}");
        reasons.push_str(&format!("{why}\n"));
    };

    folder.write("cert.pem", "no certificate");
    refused().await;
    // The next ones by SIGHUP, because the service checks its files only every two seconds.
    for break_next in [
        &|| _ = std::fs::copy(&other.file, &first.file).unwrap(),
        &|| folder.write("cert.key", "no key"),
        &|| std::fs::remove_file(&first.key).unwrap(),
        &|| assert!(folder.program("mkfifo").arg("cert.key").status().unwrap().success()),
    ] as [&dyn Fn(); 4]
    {
        break_next();
        server.signal(Signal::HUP);
        refused().await;
    }

    expect![[r#"
        cert.pem has no certificate in PEM
        cannot use cert.pem with cert.key: keys may not be consistent: KeyMismatch; use a certificate of X.509 version 3, first in its file, with its key: RSA of 2048 to 4096 bits, P-256, P-384 or Ed25519
        cert.key has no private key in PEM; keys with a passphrase are not supported
        cert.key: No such file or directory (os error 2)
        cert.key: not a regular file
    "#]]
    .assert_eq(&reasons);
    assert_eq!(metrics(&server, &first).await.metric("petstore_certificate_rejected"), 1.0);
    std::fs::remove_file(&first.key).unwrap();
    other.replace(&first);
    folder.write("cert.pem", format!("\u{feff}  {}", folder.read("cert.pem")));
    server.signal(Signal::HUP);
    server.logged("certificate reloaded");
    assert!(other.is_presented(server.address("store")).await);
    assert_eq!(metrics(&server, &other).await.metric("petstore_certificate_rejected"), 0.0);
}

#[test]
fn service_refuses_to_start_with_a_bad_certificate() {
    let (folder, _) = folder();
    Certificate::of_localhost(&folder.path(""), "other");
    folder.write("empty.pem", "");
    // As a variable of CI without its line breaks.
    folder.write("joined.pem", folder.read("cert.key").replace('\n', ""));
    let mut shown = String::new();
    for flags in [
        "--tls-cert missing.pem --tls-key cert.key",
        "--tls-cert empty.pem --tls-key cert.key",
        "--tls-cert joined.pem --tls-key cert.key",
        "--tls-cert cert.pem --tls-key cert.pem",
        "--tls-cert cert.pem --tls-key other.key",
    ] {
        let ended = folder.run(&format!("serve --listen 127.0.0.1:0 {flags}"));
        shown.push_str(&format!("{flags}: {}", ended.shown_log()));
        assert!(!folder.path("petstore-data").exists(), "{flags}");
    }
    let url = "postgres://db/shop?sslmode=verify-full&sslrootcert=joined.pem";
    let trusting = folder.run(&format!("key list --database-url {url}")).shown();
    assert!(trusting.ends_with(": joined.pem is not valid PEM\n"), "{trusting}");
    let half = folder.run("quickstart --tls-cert cert.pem").usage();
    assert_eq!(half, "exit 2\nerror: a certificate needs its private key: give --tls-key too\n");
    let half = Process::start(folder.command("serve").env("PETSTORE_TLS_KEY", "cert.key")).end().usage();
    assert_eq!(half, "exit 2\nerror: a private key needs its certificate: give --tls-cert too\n");
    expect![[r#"
        --tls-cert missing.pem --tls-key cert.key: exit 1
        ERROR missing.pem: No such file or directory (os error 2)
        --tls-cert empty.pem --tls-key cert.key: exit 1
        ERROR empty.pem has no certificate in PEM
        --tls-cert joined.pem --tls-key cert.key: exit 1
        ERROR joined.pem is not valid PEM
        --tls-cert cert.pem --tls-key cert.pem: exit 1
        ERROR cert.pem has no private key in PEM; keys with a passphrase are not supported
        --tls-cert cert.pem --tls-key other.key: exit 1
        ERROR cannot use cert.pem with other.key: keys may not be consistent: KeyMismatch; use a certificate of X.509 version 3, first in its file, with its key: RSA of 2048 to 4096 bits, P-256, P-384 or Ed25519
    "#]]
    .assert_eq(&shown);
}

#[test]
fn production_rejects_public_addresses_without_tls() {
    let (folder, _) = folder();
    // This machine does not have these addresses, so no port opens even for a moment.
    let store = "--listen 192.0.2.1:8080 --messages-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";
    let mut shown = String::new();
    for flags in [
        store.to_owned(),
        "--listen 127.0.0.1:0 --messages-listen 192.0.2.1:8081 --ops-listen 127.0.0.1:0".to_owned(),
        format!("{store} --insecure"),
        format!("{store} --data-dir staging --deployment staging"),
        format!("{store} --trusted-proxy 10.0.0.1"),
        format!("{store} {TLS}"),
        "--listen 192.0.2.1:8080 --ops-listen 192.0.2.1:8082 --listeners ops".to_owned(),
        "--ops-listen 192.0.2.1:8082 --listeners ops --data-dir staging --deployment staging".to_owned(),
    ] {
        let ended = folder.run(&format!("serve --log-level warn {flags}"));
        shown.push_str(&format!("{flags}: {}", ended.shown_log()));
        assert!(!folder.path("petstore-data").exists(), "{flags}");
    }
    expect![[r#"
        --listen 192.0.2.1:8080 --messages-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0: exit 1
        ERROR the store listener is bound to 192.0.2.1:8080, which other machines may reach, without TLS: API keys and passwords can be read in transit. Give --tls-cert and --tls-key, or --trusted-proxy if a proxy in front terminates TLS; --insecure serves anyway
        --listen 127.0.0.1:0 --messages-listen 192.0.2.1:8081 --ops-listen 127.0.0.1:0: exit 1
        ERROR the messages listener is bound to 192.0.2.1:8081, which other machines may reach, without TLS: API keys and passwords can be read in transit. Give --tls-cert and --tls-key, or --trusted-proxy if a proxy in front terminates TLS; --insecure serves anyway
        --listen 192.0.2.1:8080 --messages-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0 --insecure: exit 1
        WARN the store listener is bound to 192.0.2.1:8080, which other machines may reach, without TLS: API keys and passwords can be read in transit. Give --tls-cert and --tls-key, or --trusted-proxy if a proxy in front terminates TLS
        ERROR cannot listen on 192.0.2.1:8080 (--listen): Cannot assign requested address (os error 99)
        --listen 192.0.2.1:8080 --messages-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0 --data-dir staging --deployment staging: exit 1
        WARN the store listener is bound to 192.0.2.1:8080, which other machines may reach, without TLS: API keys and passwords can be read in transit. Give --tls-cert and --tls-key, or --trusted-proxy if a proxy in front terminates TLS
        ERROR cannot listen on 192.0.2.1:8080 (--listen): Cannot assign requested address (os error 99)
        --listen 192.0.2.1:8080 --messages-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0 --trusted-proxy 10.0.0.1: exit 1
        ERROR cannot listen on 192.0.2.1:8080 (--listen): Cannot assign requested address (os error 99)
        --listen 192.0.2.1:8080 --messages-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0 --tls-cert cert.pem --tls-key cert.key: exit 1
        ERROR cannot listen on 192.0.2.1:8080 (--listen): Cannot assign requested address (os error 99)
        --listen 192.0.2.1:8080 --ops-listen 192.0.2.1:8082 --listeners ops: exit 1
        WARN the ops listener is bound to 192.0.2.1:8082, which other machines may reach: metrics require no credentials
        ERROR cannot listen on 192.0.2.1:8082 (--ops-listen): Cannot assign requested address (os error 99)
        --ops-listen 192.0.2.1:8082 --listeners ops --data-dir staging --deployment staging: exit 1
        WARN the ops listener is bound to 192.0.2.1:8082, which other machines may reach: metrics require no credentials, and API keys can be read in transit
        ERROR cannot listen on 192.0.2.1:8082 (--ops-listen): Cannot assign requested address (os error 99)
    "#]]
    .assert_eq(&shown);
}

async fn assert_is_answered(server: &Server, stream: &mut TlsStream<TcpStream>) {
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(soon(read_response_from(server.address("store"), stream)).await.status(), 200);
}

/// `prometheus.rs` waits for the alert of a rejected certificate.
#[tokio::test]
async fn metrics_tell_when_the_certificate_expires() {
    let (folder, certificate) = folder();
    let server = folder.serve(&format!("serve {TLS}"));
    let end = "date -d \"$(openssl x509 -in cert.pem -noout -enddate | cut -d= -f2)\" +%s";
    let end = Process::start(folder.program("sh").args(["-c", end])).end().stdout;
    let expected = end.trim().parse::<f64>().unwrap();
    let metrics = metrics(&server, &certificate).await;
    assert_eq!(metrics.metric("petstore_certificate_expiry_timestamp_seconds"), expected);
}

async fn metrics(server: &Server, certificate: &Certificate) -> Response {
    let address = server.address("ops");
    Request::new(address, "GET", "/metrics").send_over(certificate.connect(address).await).await
}
