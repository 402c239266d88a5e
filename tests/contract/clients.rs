//! Generated clients. The commands of docs/clients.md generate them from a running service. The tests then run the programs
//! of the page, and with each client the same story, in `tests/contract/clients`.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use tempfile::TempDir;

use crate::failing::{FailingProxy, RETRY_AFTER};
use crate::guide::{Section, section};
use crate::process::{Petstore, go, run, shell, shown, tool};

/// The output of each story: step, status, and a value of the response.
const STORY: &str = "\
list 200 20
create with status 201 sold
create 201 available
replay 201 true
reused key 422 idempotency_key_reused
get 200 Rex
get unknown 404 not_found
wrong key 401 invalid_api_key
order 201 placed
order again 409 conflict
approve 200 approved
deliver 200 delivered
message 202 queued
";

/// The output of `simulation.py`: preference, status, code and headers.
const SIMULATION: &str = "\
code=503 503 unavailable Retry-After=1
code=429 429 rate_limited Retry-After=1
code=503 503 unavailable Retry-After=1
code=409 409 conflict
error=missing_field 400 missing_field
error=invalid_api_key 401 invalid_api_key WWW-Authenticate=Bearer realm=\"petstore\", error=\"invalid_token\"
delay=700 200 no error
delay=700 ReadTimeout
drop=response RemoteProtocolError
retried 201 31 replayed=true
drop=request RemoteProtocolError
retried 201 32 replayed=false
date=2030-12-05 410 operation_removed Sunset=Thu, 05 Dec 2030 00:00:00 GMT
date=2030-12-05 201 no error
";

/// A client generated from the document of a service, in a folder with its programs.
struct Client {
    service: Petstore,
    proxy: FailingProxy,
    folder: TempDir,
}

#[test]
fn openapi_fetch_client_works() {
    let client = Client::generate("TypeScript with openapi-fetch", "openapi-fetch", "example.ts");
    client.write("package.json", r#"{"type":"module"}"#);
    client.run("tsc --strict --skipLibCheck --target es2022 --module nodenext --noEmit example.ts story.ts");
    client.tells_the_story("node story.ts");
    client.example_works("node example.ts", true);
}

#[test]
fn hey_api_client_works() {
    let client = Client::generate("TypeScript with Hey API", "hey-api", "example.ts");
    client.run("tsc --strict --skipLibCheck --target es2022 --module nodenext --outDir js example.ts story.ts");
    client.tells_the_story("node js/story.js");
    client.example_works("node js/example.js", true);
}

#[test]
fn python_client_works() {
    let client = Client::generate("Python", "python", "example.py");
    client.tells_the_story("python story.py");
    client.example_works("python example.py", true);
}

#[test]
fn generated_client_meets_every_simulated_failure() {
    let client = Client::generate("Python", "python", "example.py");
    assert_eq!(client.run("python simulation.py"), SIMULATION);
}

#[test]
fn go_client_works() {
    let client = Client::generate("Go", "go", "example.go");
    client.tells_the_story(&go("run story.go"));
    client.example_works(&go("run example.go"), true);
}

#[test]
fn rust_client_works() {
    let client = Client::generate("Rust", "rust", "example.rs");
    // Cargo needs the user's home, where it is installed. The tests keep the target folder and build dependencies once.
    let home = std::env::var("HOME").unwrap();
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/rust-client");
    let cargo = format!("HOME='{home}' CARGO_TARGET_DIR='{}' cargo run --locked --quiet --bin", target.display());
    client.tells_the_story(&format!("{cargo} story"));
    // The generated client does not return the headers of errors.
    client.example_works(&format!("{cargo} example"), false);
}

impl Client {
    /// Starts a service, runs the commands of a section, and adds the story and the section's program.
    fn generate(heading: &str, story: &str, program_name: &str) -> Self {
        let mut service = Petstore::start();
        let (proxy, address) = FailingProxy::start(&service.store);
        service.store = address;
        let client = Self { service, proxy, folder: tempfile::tempdir().unwrap() };
        let stories = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract/clients").join(story);
        for file in std::fs::read_dir(stories).unwrap().map(|file| file.unwrap().path()) {
            std::fs::copy(&file, client.folder.path().join(file.file_name().unwrap())).unwrap();
        }
        std::os::unix::fs::symlink(tool("npm/node_modules"), client.folder.path().join("node_modules")).unwrap();
        let Section { commands, program } = section(heading);
        client.run(&commands);
        client.write(program_name, &program);
        client
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn tells_the_story(&self, command: &str) {
        assert_eq!(self.run(command), STORY);
    }

    /// Runs the program of the page. It adds an animal once, and lists all of them, although requests fail. With a wrong key,
    /// it fails.
    fn example_works(&self, command: &str, reads_retry_after: bool) {
        self.proxy.fail_next(&["code=429", "code=503", "drop=response", "", "code=503", ""]);
        let printed = self.run(command);
        let attempts = self.proxy.fail_next(&[]);
        let keys: Vec<_> = attempts.iter().map(|attempt| attempt.idempotency_key.as_ref()).collect();
        assert!(keys.len() == 4 && keys.iter().all(|key| key.is_some() && *key == keys[0]), "{keys:?}");
        if reads_retry_after {
            let waited = attempts[1].at - attempts[0].at;
            assert!(waited >= Duration::from_secs(RETRY_AFTER), "{command} waits for {waited:?}");
        }
        let wrong = self.output(&format!("STORE_API_KEY=pet_test_wrong {command}"));
        assert!(!wrong.status.success() && wrong.stdout.is_empty(), "{command}\n{}", shown(&wrong));
        let lines: Vec<_> = printed.lines().collect();
        // 30 animals of the quickstart, and two of the story.
        assert_eq!(lines.len(), 1 + 30 + 2 + 1, "{printed}");
        assert_eq!((lines[0], lines[1], lines[33]), ("added Rex", "1 Rex", "33 Rex"), "{printed}");
    }

    /// Runs a command in the client's folder and returns its output.
    fn run(&self, command: &str) -> String {
        let output = self.output(command);
        assert!(output.status.success(), "{command}\n{}", shown(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn output(&self, command: &str) -> Output {
        let mut shell = shell(&self.service.at_its_addresses(command));
        run(self.service.environment(&mut shell), self.folder.path())
    }
}
