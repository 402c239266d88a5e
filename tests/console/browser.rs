//! A real browser, driven by the W3C's WebDriver protocol. The tests use so little of it that they need no client library.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::console::PASSWORD;
use testkit::{Killed, Request, TIMEOUT, soon, until};

use crate::service::Service;

/// Chromium without windows, which starts with a quarter of the work. The script in /usr/bin does not `exec`, so killing it
/// would leave the browser running.
const BROWSER: &str = "/usr/lib/chromium/chromium-headless-shell";

const STALE: &str = "stale element reference";

/// Headless Chromium. Killed on drop.
pub struct Browser {
    _driver: Killed,
    address: SocketAddr,
    session: String,
    /// The process of the browser, which a killed driver does not end.
    process: Option<i64>,
    site: String,
    /// Holds the driver's files and the browser's profile.
    _folder: tempfile::TempDir,
}

/// Decides if pages may run scripts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scripts {
    On,
    Off,
}

impl Browser {
    /// Starts a service and a browser that shows its pages.
    pub async fn with_service(scripts: Scripts) -> (Service, Self) {
        let service = Service::start().await;
        let browser = Self::start(&service, scripts).await;
        (service, browser)
    }

    pub async fn start(service: &Service, scripts: Scripts) -> Self {
        assert!(Path::new(BROWSER).exists(), "{BROWSER} is missing: run scripts/test, which installs it");
        let folder = tempfile::tempdir().unwrap();
        // The driver ends if another process has its port on IPv6.
        let (driver, port) = (0..5).find_map(|_| start_driver(folder.path())).expect("the driver prints its port");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let options = json!({
            "binary": BROWSER,
            // The sandbox does not work for root, and tests in a container run as root.
            "args": ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        });
        let wanted =
            json!({ "capabilities": { "alwaysMatch": { "browserName": "chrome", "goog:chromeOptions": options } } });
        let mut browser = Self {
            _driver: Killed(driver),
            address,
            session: String::new(),
            process: None,
            site: format!("http://{}", service.store_address),
            _folder: folder,
        };
        let session = browser.call("POST", "/session", wanted).await;
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        browser.process = session["capabilities"]["goog:processID"].as_i64();
        assert!(browser.process.is_some(), "{session}");
        if scripts == Scripts::Off {
            browser.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
        }
        // Scripts also compute: axe takes seconds of a core for the reference.
        let (implicit, script) = (TIMEOUT.as_millis() as u64, 20 * TIMEOUT.as_millis() as u64);
        browser.post("/timeouts", json!({ "implicit": implicit, "script": script })).await;
        browser
    }

    /// Makes the browser reach the service by `host`, another name of the loopback address.
    pub fn at_host(mut self, host: &str) -> Self {
        self.site = self.site.replace("127.0.0.1", host);
        self
    }

    /// Opens one of our pages.
    pub async fn open(&self, path: &str) {
        self.post("/url", json!({ "url": format!("{}{path}", self.site) })).await;
    }

    /// Reloads the page. The response to a form is requested by sending the form again.
    pub async fn reload(&self) {
        self.post("/refresh", json!({})).await;
    }

    /// Types into the element of a CSS selector.
    pub async fn type_into(&self, selector: &str, text: &str) {
        self.act("POST", selector, "value", json!({ "text": text })).await;
    }

    /// Clicks and waits for the next page.
    pub async fn follow(&self, selector: &str) {
        let before = self.find("html").await;
        self.click(selector).await;
        until(async || self.find("html").await != before).await;
        self.find("footer").await;
    }

    /// Presses keys in the focused element.
    pub async fn press(&self, keys: &str) {
        let keys: Vec<Value> = keys
            .chars()
            .flat_map(|key| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })])
            .collect();
        self.post("/actions", json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": keys }] })).await;
    }

    pub async fn click(&self, selector: &str) {
        self.act("POST", selector, "click", json!({})).await;
    }

    /// The visible text of an element.
    pub async fn text(&self, selector: &str) -> String {
        self.act("GET", selector, "text", Value::Null).await.as_str().unwrap().to_owned()
    }

    /// Number of elements of a CSS selector. Works without scripts.
    pub async fn count(&self, selector: &str) -> usize {
        let found = self.post("/elements", json!({ "using": "css selector", "value": selector })).await;
        found.as_array().unwrap().len()
    }

    pub async fn is_shown(&self, selector: &str) -> bool {
        self.act("GET", selector, "displayed", Value::Null).await == true
    }

    /// The path and query of the page.
    pub async fn path(&self) -> String {
        let url = self.call("GET", &format!("{}/url", self.session), Value::Null).await;
        url.as_str().unwrap().strip_prefix(&self.site).unwrap().to_owned()
    }

    /// The result of an asynchronous script, which the page's policy does not stop.
    pub async fn evaluate(&self, script: &str) -> Value {
        let script = format!(
            "const done = arguments[0]; (async () => {{ {script} }})().then(done, error => done(String(error)));"
        );
        self.post("/execute/async", json!({ "script": script, "args": [] })).await
    }

    /// Runs a script in each page that opens from now on, before the page's own.
    pub async fn run_on_each_page(&self, script: &str) {
        self.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script })).await;
    }

    /// Sets the width of the screen in CSS pixels.
    pub async fn set_width(&self, width: u32) {
        let screen = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", screen).await;
    }

    /// Sets the colour scheme: `light` or `dark`.
    pub async fn set_scheme(&self, scheme: &str) {
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            // Otherwise a check may see a colour in transition.
            { "name": "prefers-reduced-motion", "value": "reduce" }
        ]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// Lets pages use the clipboard without asking.
    pub async fn allow_clipboard(&self) {
        let permissions =
            json!({ "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": self.site });
        self.devtools("Browser.grantPermissions", permissions).await;
    }

    /// Fills in the form of a page and sends it. A field is named by its id.
    pub async fn submit(&self, path: &str, fields: &[(&str, &str)]) {
        self.open(path).await;
        for (field, text) in fields {
            self.type_into(&format!("#{field}"), text).await;
        }
        self.follow("main button.primary").await;
    }

    pub async fn sign_up(&self, email: &str) {
        self.submit("/sign-up", &[("email", email), ("password", PASSWORD)]).await;
        assert_eq!(self.text("h1").await, "Overview");
    }

    async fn devtools(&self, command: &str, parameters: Value) {
        self.post("/goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await;
    }

    /// Calls a command of an element, or of the one by which the page replaces it meanwhile.
    async fn act(&self, method: &str, selector: &str, command: &str, body: Value) -> Value {
        for _ in 0..1_000 {
            let element = self.find(selector).await;
            let value = self.call(method, &format!("{}/element/{element}/{command}", self.session), body.clone()).await;
            if value["error"] != STALE {
                return value;
            }
        }
        panic!("{selector} is always replaced");
    }

    async fn find(&self, selector: &str) -> String {
        let element = self.post("/element", json!({ "using": "css selector", "value": selector })).await;
        element.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.call("POST", &format!("{}{path}", self.session), body).await
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> Value {
        let request = Request::new(self.address, method, path);
        let request = if body.is_null() { request } else { request.json(body.to_string()) };
        let limit = if path.ends_with("/async") { 30 * TIMEOUT } else { 3 * TIMEOUT };
        let answer = tokio::time::timeout(limit, request.send()).await.expect("the driver answers");
        let value = answer.json()["value"].take();
        assert!(answer.status() == 200 || value["error"] == STALE, "{method} {path} {body}: {value}");
        value
    }

    /// Closes the browser. Dropping it does so after a failure.
    pub async fn close(mut self) {
        soon(self.call("DELETE", &self.session.clone(), Value::Null)).await;
        self.process = None;
    }
}

/// Starts chromedriver on a free port. `None` if it ends before it listens.
fn start_driver(folder: &Path) -> Option<(Child, u16)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .env("TMPDIR", folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{error}: run scripts/test, which installs chromium-driver"));
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map(Result::unwrap);
    let port = lines.find_map(|line| line.split_once("successfully on port ").map(|(_, port)| port.to_owned()));
    let Some(port) = port else {
        driver.wait().unwrap();
        return None;
    };
    // A full pipe would stop the driver.
    std::thread::spawn(move || lines.for_each(drop));
    Some((driver, port.trim_end_matches('.').parse().unwrap()))
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(process) = self.process.and_then(|process| rustix::process::Pid::from_raw(process.try_into().ok()?))
        {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    }
}
