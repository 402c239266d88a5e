//! The example configurations in `ops/proxy/`, each with the real proxy, TLS and two processes.

use std::path::Path;
use std::process::Command;

use testkit::postgres::free_port;
use testkit::{Certificate, Database, Process, TIMEOUT, server_program, within};

const NAMES: [&str; 2] = ["pets.example.com", "messages.example.com"];

/// The settings that the examples ask for. nginx needs no drain delay.
const SETTINGS: &str = "--trusted-proxy 127.0.0.1 --drain-delay 2s --base-url https://pets.example.com/v1 \
                        --messages-base-url https://messages.example.com/v1";

const UNREACHABLE: &str = r#"{"code":"unavailable","message":"The service cannot be reached.","status":503}"#;

#[test]
fn nginx_example_works() {
    check_example("nginx.conf", |config, folder, address| {
        let config = config
            .replace("listen 443", &format!("listen {address}"))
            .replace("/etc/nginx/petstore.pem", &format!("{folder}/tls.pem"))
            .replace("/etc/nginx/petstore.key", &format!("{folder}/tls.key"));
        let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let folders: String = folders.iter().map(|of| format!("{of}_temp_path {folder}/{of};\n")).collect();
        let whole = format!(
            "daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{folders}{config}}}\n"
        );
        (whole, vec!["nginx", "-c"])
    });
}

#[test]
fn caddy_example_works() {
    check_example("Caddyfile", |config, folder, address| {
        let port = address.rsplit_once(':').unwrap().1;
        let tls = format!("{{\n\ttls {folder}/tls.pem {folder}/tls.key\n");
        let sites = NAMES
            .iter()
            .fold(config, |config, name| config.replace(&format!("{name} {{\n"), &format!("{name}:{port} {tls}")));
        let options = format!("{{\n\tadmin off\n\tstorage file_system {folder}\n\tauto_https disable_redirects\n}}\n");
        (options + &sites, vec!["caddy", "run", "--adapter", "caddyfile", "--config"])
    });
}

#[test]
fn haproxy_example_works() {
    check_example("haproxy.cfg", |config, folder, address| {
        let both = ["tls.pem", "tls.key"].map(|file| std::fs::read_to_string(format!("{folder}/{file}")).unwrap());
        std::fs::write(format!("{folder}/both.pem"), both.concat()).unwrap();
        let config = config
            .replace("bind :443", &format!("bind {address}"))
            .replace("/etc/haproxy/petstore.pem", &format!("{folder}/both.pem"));
        (config, vec!["haproxy", "-db", "-f"])
    });
}

/// Runs an example in front of two processes. `adapt` sets the proxy's address and files, and returns the command that runs
/// a configuration.
fn check_example(file: &str, adapt: fn(String, &str, &str) -> (String, Vec<&'static str>)) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(&folder.path().join("data"));
    let certificate = Certificate::of_server(folder.path(), "tls", &NAMES.map(|name| format!("DNS:{name}")).join(","));
    let mut services = [(), ()].map(|()| database.serve_with(SETTINGS));
    let key = database.make_key();
    let address = format!("127.0.0.1:{}", free_port());
    let example = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ops/proxy").join(file)).unwrap();
    let example = services.iter().zip(["10.0.0.11", "10.0.0.12"]).fold(example, |text, (service, host)| {
        text.replace(&format!("{host}:8080"), &service.store().to_string())
            .replace(&format!("{host}:8081"), &service.messages().to_string())
    });
    let (config, command) = adapt(example, folder.path().to_str().unwrap(), &address);
    let config_file = folder.path().join(file);
    std::fs::write(&config_file, config).unwrap();
    // Caddy writes to the home folder.
    let mut proxy = server_program(command[0]);
    let _proxy = Process::start(proxy.args(&command[1..]).arg(config_file).env("HOME", folder.path()));
    let curl = |name: &str, path: &str, body: Option<&str>| {
        let (host, port) = address.rsplit_once(':').unwrap();
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--include", "--max-time", "60", "--http2", "--cacert"]);
        curl.arg(&certificate.file).args(["--resolve", &format!("{name}:{port}:{host}")]);
        curl.args(["--header", &format!("Authorization: Bearer {key}")]);
        if let Some(body) = body {
            curl.args(["--json", body]);
        }
        Process::start(curl.arg(format!("https://{name}:{port}/v1{path}"))).end().stdout
    };
    within(TIMEOUT, "the proxy", || curl(NAMES[0], "/pets", None).starts_with("HTTP/2 200"));
    within(TIMEOUT, "the proxy", || curl(NAMES[1], "/pets", None).starts_with("HTTP/2 404"));

    let created = curl(NAMES[0], "/pets", Some(r#"{"name":"Rex","categoryId":1}"#));
    let location = "location: https://pets.example.com/v1/pets/1\r\n";
    assert!(created.starts_with("HTTP/2 201") && created.contains(location), "{created}");
    let queued = curl(NAMES[1], "/messages", Some(r#"{"message":"Hello"}"#));
    assert!(queued.starts_with("HTTP/2 202"), "{queued}");
    let long = format!(r#"{{"name":"{}","categoryId":1}}"#, "x".repeat(70_000));
    let rejected = curl(NAMES[0], "/pets", Some(&long));
    assert!(rejected.contains(r#""code":"payload_too_large""#), "the service's own error: {rejected}");

    // One process stops: the other one responds. Reads and writes go on.
    services[0].stop();
    within(TIMEOUT, "one process", || curl(NAMES[0], "/pets", None).starts_with("HTTP/2 200"));
    for _ in 0..4 {
        let created = curl(NAMES[0], "/pets", Some(r#"{"name":"Rex","categoryId":1}"#));
        assert!(created.starts_with("HTTP/2 201"), "{created}");
    }

    services[1].stop();
    within(TIMEOUT, "no process", || {
        let response = curl(NAMES[0], "/pets", None);
        response.starts_with("HTTP/2 503") && response.contains("retry-after: 1\r\n") && response.ends_with(UNREACHABLE)
    });
}
