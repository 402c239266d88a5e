//! The proxies of `ops/proxy/`, with their example configurations, in front of taps.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Mutex;

use tempfile::TempDir;
use testkit::postgres::free_port;
use testkit::{Process, server_program};

pub const NAMES: [&str; 3] = ["HAProxy", "nginx", "Caddy"];

/// The addresses behind a proxy: the taps of the store and of the messages, and the listeners for health checks.
pub struct Upstreams {
    pub store: SocketAddr,
    pub messages: SocketAddr,
    pub store_health: u16,
    pub messages_health: u16,
}

/// A running proxy. Ends on drop.
pub struct Proxy {
    pub name: &'static str,
    pub address: SocketAddr,
    /// Speaks HTTP/2 without TLS.
    pub http2: SocketAddr,
    running: Mutex<(Command, Process)>,
    _folder: TempDir,
}

impl Proxy {
    /// Starts a proxy with its example configuration and four changes. It uses no TLS. A rule blocks
    /// `/.well-known`. An `x-request-id` begins with `secret` and the mark of the client's request. Health checks wait
    /// longer, because a test loads the machine.
    pub fn start(name: &'static str, secret: &str, upstreams: &Upstreams) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [address, http2] = [(), ()].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
        let path = folder.path().to_str().unwrap();
        let (file, config, command) = match name {
            "HAProxy" => ("haproxy.cfg", haproxy(address, http2, secret, upstreams), vec!["haproxy", "-db", "-f"]),
            "nginx" => ("nginx.conf", nginx(address, http2, secret, upstreams, path), vec!["nginx", "-c"]),
            _ => (
                "Caddyfile",
                caddy(address, secret, upstreams, path),
                vec!["caddy", "run", "--adapter", "caddyfile", "--config"],
            ),
        };
        let config_file = folder.path().join(file);
        std::fs::write(&config_file, config).unwrap();
        let mut program = server_program(command[0]);
        program.args(&command[1..]).arg(config_file).env("HOME", path);
        // Caddy tells HTTP/2 by its first bytes.
        let http2 = if name == "Caddy" { address } else { http2 };
        let process = Process::start(&mut program);
        Self { name, address, http2, running: Mutex::new((program, process)), _folder: folder }
    }

    /// Starts the proxy again if it has ended, as a supervisor would. Returns whether it had.
    pub fn restart_if_ended(&self) -> bool {
        let (command, process) = &mut *self.running.lock().unwrap();
        let has_ended = process.has_ended();
        if has_ended {
            *process = Process::start(command);
        }
        has_ended
    }
}

fn example(file: &str) -> String {
    std::fs::read_to_string(testkit::root().join("ops/proxy").join(file)).unwrap()
}

/// Replaces a text that the example must contain.
fn replace(config: &str, old: &str, new: &str) -> String {
    assert!(config.contains(old), "the example has no {old:?}");
    config.replace(old, new)
}

fn haproxy(address: SocketAddr, http2: SocketAddr, secret: &str, upstreams: &Upstreams) -> String {
    let rule = "    http-request deny if { path_beg /.well-known }";
    let mark = format!("    http-request set-header X-Request-Id {secret}-%[req.hdr(x-case,1)]-%[uuid()]");
    let mut config = example("haproxy.cfg");
    config = replace(
        &config,
        "bind :443 ssl crt /etc/haproxy/petstore.pem alpn h2,http/1.1",
        &format!("bind {address}\n    bind {http2} proto h2"),
    );
    config = replace(&config, "timeout check 1s", "timeout check 20s");
    let forwarded = "    http-request del-header X-Forwarded-For\n";
    config = replace(&config, forwarded, &format!("{forwarded}{rule}\n{mark}\n"));
    for host in ["10.0.0.11", "10.0.0.12"] {
        for (port, tap, health) in
            [(8080, upstreams.store, upstreams.store_health), (8081, upstreams.messages, upstreams.messages_health)]
        {
            config = replace(&config, &format!("{host}:{port} check"), &format!("{tap} check port {health}"));
        }
    }
    config
}

fn nginx(address: SocketAddr, http2: SocketAddr, secret: &str, upstreams: &Upstreams, folder: &str) -> String {
    let mut config = example("nginx.conf");
    config = replace(&config, "listen 443 ssl http2;", &format!("listen {address};\n    listen {http2} http2;"));
    config = replace(&config, "    ssl_certificate /etc/nginx/petstore.pem;\n", "");
    config = replace(&config, "    ssl_certificate_key /etc/nginx/petstore.key;\n", "");
    let connection = "        proxy_set_header Connection \"\";\n";
    let mark = format!("        proxy_set_header X-Request-Id \"{secret}-$case-$request_id\";\n");
    config = replace(&config, connection, &format!("{connection}{mark}"));
    let rule = "    location ^~ /.well-known { return 403; }\n";
    config = replace(&config, "    location / {\n", &format!("{rule}    location / {{\n"));
    for host in ["10.0.0.11", "10.0.0.12"] {
        config = replace(&config, &format!("{host}:8080"), &upstreams.store.to_string());
        config = replace(&config, &format!("{host}:8081"), &upstreams.messages.to_string());
    }
    let folders: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|of| format!("{of}_temp_path {folder}/{of};\n"))
        .collect();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log stderr emerg;\nevents {{ worker_connections 4096; }}\n\
         http {{\naccess_log off;\n{folders}map $http_x_case $case {{ default \"\"; \"~^(?<mark>[0-9]+[a-z])\" $mark; }}\n\
         {config}}}\n"
    )
}

fn caddy(address: SocketAddr, secret: &str, upstreams: &Upstreams, folder: &str) -> String {
    let mut config = replace(&example("Caddyfile"), "health_timeout 1s", "health_timeout 20s");
    for (name, port, tap, health) in [
        ("pets.example.com", 8080, upstreams.store, upstreams.store_health),
        ("messages.example.com", 8081, upstreams.messages, upstreams.messages_health),
    ] {
        let rule = "\t@blocked path /.well-known*\n\trespond @blocked 403\n";
        let site = format!("http://{name}:{} {{\n{rule}", address.port());
        config = replace(&config, &format!("\n{name} {{\n"), &format!("\n{site}"));
        let mark =
            format!("\t\theader_up X-Request-Id {secret}-{{http.request.header.X-Case}}-{{http.request.uuid}}\n");
        let upstream = format!("reverse_proxy {tap} {{\n\t\thealth_port {health}\n{mark}");
        config = replace(&config, &format!("reverse_proxy 10.0.0.11:{port} 10.0.0.12:{port} {{\n"), &upstream);
    }
    format!(
        "{{\n\tadmin off\n\tauto_https off\n\tstorage file_system {folder}\n\tlog {{\n\t\tlevel ERROR\n\t}}\n\tservers {{\n\t\tprotocols h1 h2 h2c\n\t}}\n}}\n{config}"
    )
}
