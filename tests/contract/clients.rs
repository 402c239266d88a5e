//! Generated clients. The commands of docs/clients.md generate them from a store, which then ends. The tests run the programs
//! of the page with other stores, and with each client the same story, in `tests/contract/clients`.

use std::path::Path;
use std::process::Output;
use std::thread;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tempfile::TempDir;

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

/// The line of the checklist that the client in Rust repeats, as if the first request were still in progress.
const CONFLICT: &str = "code=409, operation=placeOrder";

/// A client generated from the document of another store, in a folder with its programs.
struct Client {
    service: Petstore,
    folder: TempDir,
}

#[test]
fn openapi_fetch_client_works() {
    let client = Client::generate("TypeScript with openapi-fetch", "openapi-fetch", "example.ts");
    client.write("package.json", r#"{"type":"module"}"#);
    client.run("tsc --strict --skipLibCheck --target es2022 --module nodenext --noEmit example.ts story.ts");
    client.tells_the_story("node story.ts");
    client.passes_the_checklist("node example.ts", true);
}

#[test]
fn hey_api_client_works() {
    let client = Client::generate("TypeScript with Hey API", "hey-api", "example.ts");
    client.run("tsc --strict --skipLibCheck --target es2022 --module nodenext --outDir js example.ts story.ts");
    client.tells_the_story("node js/story.js");
    client.passes_the_checklist("node js/example.js", true);
}

#[test]
fn python_client_works() {
    let client = Client::generate("Python", "python", "example.py");
    client.tells_the_story("python story.py");
    client.passes_the_checklist("python example.py", true);
}

#[test]
fn go_client_works() {
    let client = Client::generate("Go", "go", "example.go");
    client.run(&go("vet ./..."));
    client.run(&go("test ./..."));
    client.tells_the_story(&go("run story.go"));
    client.passes_the_checklist(&go("run example.go"), true);
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
    client.passes_the_checklist(&format!("{cargo} example"), false);
}

impl Client {
    /// Runs the commands of a section with a store of their own, adds the story and the section's program, and starts the
    /// service that these use.
    fn generate(heading: &str, story: &str, program_name: &str) -> Self {
        let client = Self { service: Petstore::start(), folder: tempfile::tempdir().unwrap() };
        let stories = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract/clients").join(story);
        for file in std::fs::read_dir(stories).unwrap().map(|file| file.unwrap().path()) {
            std::fs::copy(&file, client.folder.path().join(file.file_name().unwrap())).unwrap();
        }
        std::os::unix::fs::symlink(tool("npm/node_modules"), client.folder.path().join("node_modules")).unwrap();
        let Section { commands, program } = section(heading);
        let commands = commands.replace("http://127.0.0.1:8080", "${STORE_URL%/v1}");
        let generated = client.with_store_of_its_own("", &commands);
        assert!(generated.status.success(), "{}", shown(&generated));
        client.write(program_name, &program);
        client
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn tells_the_story(&self, command: &str) {
        assert_eq!(self.run(command), STORY);
    }

    /// Runs the program of the page with a key for each line of the checklist in docs/test-your-client.md.
    fn passes_the_checklist(&self, command: &str, reads_retry_after: bool) {
        let checklist = checklist();
        let (slow, quick): (Vec<_>, Vec<_>) =
            checklist.iter().partition(|line| ["delay=30000", "pace=50", "code=503", CONFLICT].contains(&&***line));
        thread::scope(|scope| {
            // These clients wait until they give up.
            for preferences in slow {
                scope.spawn(move || self.passes(command, preferences));
            }
            quick.into_iter().for_each(|preferences| _ = self.passes(command, preferences));
        });
        if reads_retry_after {
            let requests = self.passes(command, "code=503, first=1, retry-after=2");
            let [failed, repeated] =
                [0, 1].map(|n| requests[n]["time"].as_str().unwrap().parse::<Timestamp>().unwrap());
            let waited = repeated.duration_since(failed);
            assert!(waited >= SignedDuration::from_secs(2), "{command} waits for {waited:?}");
        } else {
            self.passes(command, &format!("{CONFLICT}, first=1"));
        }
    }

    /// Returns the requests that the store has recorded.
    fn passes(&self, command: &str, preferences: &str) -> Vec<Value> {
        let record = "curl -sf -H \"Authorization: Bearer $STORE_API_KEY\" $OPS_URL/requests";
        let script = format!(
            "export STORE_API_KEY=$STORE_API_KEY_FAILING; ({command}) && code=0 || code=$?; {record}; exit $code"
        );
        let output = self.with_store_of_its_own(&format!("--prefer 'failing={preferences}'"), &script);
        let (printed, failure) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        println!("{command} with {preferences}\n{}", shown(&output));
        let (printed, requests) = printed.trim_end().rsplit_once('\n').unwrap_or(("", &printed));
        let requests: Vec<Value> = serde_json::from_str(requests).unwrap();
        let reports = |expected| assert!(!output.status.success() && failure.contains(expected), "{preferences}");
        match preferences {
            // Without a timeout, the program would succeed.
            "code=503" | "delay=30000" | "pace=50" => reports("request failed"),
            // Python's and Rust's enumerations have no place for other values.
            "body=unknown-value" if !output.status.success() => reports("request failed"),
            "error=invalid_api_key" => {
                reports("create another key");
                assert_eq!(requests.len(), 1, "{command} repeats a request with a wrong key");
            }
            CONFLICT => has_listed(printed, "Rex is gone", 30 + 1),
            _ => has_listed(printed, "ordered Rex", 30 + 1),
        }
        requests
    }

    /// Runs a script in the client's folder with a store that starts with `flags` and ends with the script.
    fn with_store_of_its_own(&self, flags: &str, script: &str) -> Output {
        let mut shell = shell(&format!("'{}' ephemeral {flags} -- sh -euc \"$SCRIPT\"", testkit::petstore()));
        run(shell.env("SCRIPT", script), self.folder.path())
    }

    /// Runs a command in the client's folder and returns its output.
    fn run(&self, command: &str) -> String {
        let mut shell = shell(&self.service.at_its_addresses(command));
        let output = run(self.service.environment(&mut shell), self.folder.path());
        assert!(output.status.success(), "{command}\n{}", shown(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Checks the output of a program of the page that has added the last of `animals`.
fn has_listed(printed: &str, order: &str, animals: usize) {
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 3 + animals, "{printed}");
    assert!(lines[..2] == ["added Rex", order] && lines[2].starts_with("message "), "{printed}");
    assert_eq!((lines[3], lines[2 + animals]), ("1 Rex", &*format!("{animals} Rex")), "{printed}");
}

/// Returns the preferences of the checklist in docs/test-your-client.md.
fn checklist() -> Vec<&'static str> {
    let page = include_str!("../../docs/test-your-client.md");
    let (_, checklist) = page.split_once("\n## Checklist\n").expect("a checklist");
    let codes = checklist.split("\n## ").next().unwrap_or_default().split('`').skip(1).step_by(2);
    let preferences: Vec<_> = codes.filter(|code| code.contains('=')).collect();
    assert!(preferences.len() > 10, "{preferences:?}");
    preferences
}
