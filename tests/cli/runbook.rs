//! The commands of docs/runbook.md, pasted from the page, on a service with a stand-in for systemd. `verification/faults/runbook.py`
//! runs those that need a cluster.

use testkit::postgres::free_port;
use testkit::{Certificate, Folder};

use crate::documented_commands::{blocks, steps};
use crate::shell::{Ran, paste};

const RUNBOOK: &str = include_str!("../../docs/runbook.md");

const SUDO: &str = r#"[ "$1" != -u ] || shift 2
exec "$@""#;

/// Starts and stops the service like its unit.
const SYSTEMCTL: &str = r#"cd "$(dirname "$0")/.."
alive() { [ -e "/proc/$(cat pid)/exe" ]; }
case $1 in
start)
    "$PETSTORE" serve --config petstore.toml --log-format json >>journal 2>&1 </dev/null &
    echo $! >pid
    until "$PETSTORE" healthcheck --config petstore.toml 2>&1; do alive || exit 1; sleep 0.1; done ;;
stop) ! alive || kill "$(cat pid)"; while alive; do sleep 0.1; done ;;
restart) "$0" stop "$2"; "$0" start "$2" ;;
kill) kill -s "$3" "$(cat pid)" ;;
status) [ "$2" != petstore ] || alive ;;
esac"#;

const JOURNALCTL: &str = r#"case $1 in --vacuum-size=*) ;; *) cat "$(dirname "$0")/../journal" ;; esac"#;

/// A machine with the service, in a folder.
struct Machine {
    folder: Folder,
    ports: [u16; 3],
    commands: Vec<String>,
}

impl Machine {
    fn new(folder: Folder, settings: &str) -> Self {
        let ports = [free_port(), free_port(), free_port()];
        let [store, messages, ops] = ports.map(|port| format!("\"127.0.0.1:{port}\""));
        let listeners = format!("listen = {store}\nmessages-listen = {messages}\nops-listen = {ops}\n");
        folder.write("relay-secrets", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        folder.write("petstore.toml", format!("data-dir = \"data\"\n{listeners}{settings}"));
        std::fs::create_dir(folder.path("bin")).unwrap();
        for (name, text) in [("sudo", SUDO), ("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)] {
            folder.write_program(&format!("bin/{name}"), text);
        }
        let begin =
            "export PETSTORE=$(command -v petstore) PATH=\"$PWD/bin:$PATH\"; trap 'systemctl stop petstore' EXIT";
        Self { folder, ports, commands: vec![begin.into(), "systemctl start petstore".into()] }
    }

    fn type_in(&mut self, command: &str) {
        let ports = ["127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"].into_iter().zip(self.ports);
        let command = ports.fold(command.to_owned(), |all, (at, port)| all.replace(at, &format!("127.0.0.1:{port}")));
        let command = command.replace("/etc/petstore/petstore.toml", "petstore.toml");
        self.commands.push(command.replace("/var/lib/petstore", "data"));
    }

    /// Types the commands of a section, with the reader's values. The section without a heading is the first one.
    fn follow(&mut self, heading: &str, values: &[(&str, &str)]) {
        let section = RUNBOOK.split("\n## ").find(|text| text.lines().next() == Some(heading));
        let blocks = blocks("docs/runbook.md", section.unwrap_or_else(|| panic!("no section {heading:?}")));
        let steps: Vec<_> = blocks.iter().flat_map(steps).collect();
        assert!(!steps.is_empty(), "{heading} has commands");
        for step in steps {
            let command = values.iter().fold(step.command, |all, (name, value)| all.replace(name, value));
            self.type_in(&command);
        }
    }

    /// Runs what was typed. Returns each command with its outcome.
    fn run(self) -> Vec<(String, Ran)> {
        let ran = paste(&self.folder, &[], &self.commands);
        self.commands.into_iter().zip(ran).collect()
    }
}

/// Returns the outcome of the command with this beginning.
fn outcome<'a>(ran: &'a [(String, Ran)], beginning: &str) -> &'a Ran {
    let found = ran.iter().find(|(command, _)| command.starts_with(beginning));
    &found.unwrap_or_else(|| panic!("no command {beginning:?}")).1
}

#[test]
fn procedures_of_the_runbook_work() {
    // Messages wait, because no server listens there.
    let mut machine =
        Machine::new(Folder::new(), "relay = \"http://127.0.0.1:1/\"\nrelay-secret-file = \"relay-secrets\"\n");
    let ready = "for try in $(seq 100); do petstore healthcheck && break; sleep 0.1; false; done";
    machine.follow("# Runbook", &[("petstore healthcheck", ready), ("curl -si", "curl --retry 60 -si")]);
    machine.type_in("petstore account create ada@example.com --password-stdin");
    machine.type_in("petstore key create --account ada@example.com --name leaked > key");
    machine.follow("The disk is full", &[]);

    machine.type_in("mv data/petstore.db moved.db; while systemctl status petstore; do sleep 0.1; done");
    machine.follow("A database file is gone", &[]);
    machine.type_in("mv moved.db data/petstore.db; sudo systemctl start petstore");

    let request = "curl -s -H \"Authorization: Bearer $(cat key)\" -H 'Content-Type: application/json'";
    machine.type_in(&format!("{request} 127.0.0.1:8081/v1/messages -d '{{\"message\": \"Hello\"}}'"));
    machine.type_in("until journalctl -u petstore | grep -q 'cannot relay messages'; do sleep 0.1; done");
    machine.follow("Messages are not delivered", &[]);
    machine.type_in("systemctl restart petstore");
    machine.follow("A key has leaked", &[(" ID", " 1"), ("EMAIL", "ada@example.com"), ("NAME", "next")]);
    machine.type_in(&format!("{request} 127.0.0.1:8080/v1/pets"));
    let ran = machine.run();

    let ((_, revoked), rest) = ran.split_last().unwrap();
    assert_eq!(revoked.statuses, [401], "{revoked:?}");
    for (command, ran) in rest {
        // Without a match, grep fails.
        let expected = i32::from(command.ends_with("grep '\"level\":\"ERROR\"'"));
        assert!(ran.code == expected && ran.statuses.iter().all(|status| *status < 300), "{command}\n{ran:?}");
    }
    assert_eq!(outcome(&ran, "for try").stdout, "0\n");
    assert!(outcome(&ran, "journalctl -u petstore -n 50").stdout.contains("listening"));
    assert!(outcome(&ran, "petstore messages list").stdout.contains("Hello"));
    assert!(outcome(&ran, "petstore key list").stdout.contains("leaked"), "the store is the one of before");
}

#[test]
fn certificate_can_be_checked_as_in_the_runbook() {
    let folder = Folder::new();
    Certificate::of_localhost(&folder.path(""), "cert");
    let mut machine = Machine::new(folder, "tls-cert = \"cert.pem\"\ntls-key = \"cert.key\"\n");
    machine.follow("The certificate is old", &[("chgrp petstore", "chgrp $(id -g)"), ("FILES", "cert.pem cert.key")]);
    let ran = machine.run();

    assert!(ran.iter().all(|(_, ran)| ran.code == 0), "{ran:?}");
    assert!(outcome(&ran, "openssl").stdout.contains("notAfter="), "{ran:?}");
}

/// A new section with commands belongs into one of the tests above, or into that of the cluster.
#[test]
fn every_section_with_commands_is_tested() {
    let sections = RUNBOOK.split("\n## ").filter(|text| !blocks("docs/runbook.md", text).is_empty());
    let headings: Vec<_> = sections.map(|text| text.lines().next().unwrap()).collect();
    let tested = [
        "# Runbook", "The disk is full", "A database file is gone", "PostgreSQL is gone", "Messages are not delivered",
        "A key has leaked", "The certificate is old",
    ];
    assert_eq!(headings, tested);
}
