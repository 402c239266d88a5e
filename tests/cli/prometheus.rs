//! The alerts and the dashboard in `ops/`, on a real Prometheus that scrapes a service on each database.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testkit::postgres::free_port;
use testkit::{Endpoint, FREE_PORTS, Folder, PostgresServer, Process, Request, Server, Stop, TIMEOUT};
use testkit::{new_message, new_pet, petstore, succeed, within};

const OPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ops");

/// Returns the body of a response, which is empty if there is none. Trusts the certificate of the test.
fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl").args(["-sk", "--max-time", "60"]).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

struct Service {
    server: Server,
    scheme: &'static str,
    key: String,
}

impl Service {
    fn start(folder: &Folder, name: &str, scheme: &'static str, flags: &str) -> Self {
        let mut command = folder.program(petstore());
        command.args(["quickstart", "--log-format=json", "--data-dir", name]).args(FREE_PORTS.split(' '));
        let server = Server::start(command.args(flags.split(' ')));
        let service = Self { key: folder.read(&format!("{name}/quickstart.key")).trim().to_owned(), server, scheme };
        within(TIMEOUT, "readiness", || curl(&[&service.url("ops", "/readyz")]).contains("ready"));
        service
    }

    fn url(&self, listener: &str, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.server.address(listener))
    }

    /// Sends one of each kind of request: reads, writes and a request with an invalid key.
    fn send_requests(&self) {
        let header = format!("Authorization: Bearer {}", self.key);
        let (pets, orders) = (self.url("store", "/v1/pets"), self.url("store", "/v1/store/orders"));
        let send = |url: &str, body: &str| curl(&["-H", &header, "--json", body, url]);
        let get = |url: &str| curl(&["-H", &header, url]);
        let pet = serde_json::from_str::<Value>(&send(&pets, &new_pet("Rex"))).unwrap_or_default();
        get(&format!("{pets}?limit=1"));
        get(&format!("{pets}/{}", pet["id"]));
        curl(&["-H", "Authorization: Bearer invalid", &pets]);
        send(&orders, &format!("{{\"petId\": {}}}", pet["id"]));
        get(&orders);
        send(&self.url("messages", "/v1/messages"), &new_message("Hello"));
    }
}

struct Prometheus {
    address: SocketAddr,
    _process: Process,
}

impl Prometheus {
    fn start(folder: &Folder, services: &[Service]) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        // Without `for`, alerts fire at once.
        let rules = std::fs::read_to_string(format!("{OPS}/prometheus/alerts.yml")).unwrap();
        let rules = rules.lines().filter(|line| !line.starts_with("        for: "));
        folder.write("alerts.yml", rules.collect::<Vec<_>>().join("\n"));
        let targets = services.iter().map(|service| {
            let target = service.server.address("ops");
            format!("{{targets: ['{target}'], labels: {{__scheme__: {}}}}}", service.scheme)
        });
        let targets = targets.collect::<Vec<_>>().join(", ");
        folder.write(
            "prometheus.yml",
            format!(
                "global: {{scrape_interval: 1s, evaluation_interval: 300ms}}\nrule_files: [alerts.yml]\nscrape_configs: \
                 [{{job_name: petstore, tls_config: {{insecure_skip_verify: true}}, static_configs: [{targets}]}}]\n"
            ),
        );
        let mut command = folder.program("prometheus");
        command
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=prometheus"])
            .args(["--web.listen-address", &address.to_string()]);
        let prometheus = Self { _process: Process::start(&mut command), address };
        let ready = format!("http://{}/-/ready", prometheus.address);
        within(TIMEOUT, "the start of Prometheus", || curl(&[&ready]).contains("is Ready"));
        prometheus
    }

    fn data(&self, method: &str, path: &str, form: &[(&str, &str)]) -> Value {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let response = runtime.block_on(Request::new(self.address, method, path).form(form).send()).json();
        assert_eq!(response["status"], "success", "{form:?}: {response}");
        response["data"].clone()
    }

    fn values(&self, expression: &str) -> Vec<f64> {
        let data = self.data("POST", "/api/v1/query", &[("query", expression)]);
        let results = match data["resultType"].as_str() {
            Some("scalar") => vec![data["result"].clone()],
            _ => data["result"].as_array().unwrap().iter().map(|each| each["value"].clone()).collect(),
        };
        results.iter().map(|value| value[1].as_str().unwrap().parse().unwrap()).collect()
    }

    fn has_value(&self, expression: &str) -> bool {
        self.values(expression).into_iter().any(f64::is_finite)
    }

    fn is_firing(&self, alert: &str) -> bool {
        !self.values(&format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}")).is_empty()
    }

    fn await_alert(&self, alert: &str) {
        within(TIMEOUT, alert, || self.is_firing(alert));
    }

    fn rules(&self) -> Vec<Value> {
        self.data("GET", "/api/v1/rules?type=alert", &[])["groups"][0]["rules"].as_array().unwrap().clone()
    }

    /// Returns the expressions of the dashboard, and both sides of each rule's comparison, which itself has data only while the
    /// alert fires.
    fn expressions(&self) -> Vec<String> {
        let dashboard = std::fs::read_to_string(format!("{OPS}/grafana/petstore.json")).unwrap();
        let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
        let panels = dashboard["panels"].as_array().unwrap().iter();
        let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
        let filled = |expression: &str| expression.replace("$__rate_interval", "1m").replace("$instance", ".*");
        let mut expressions: Vec<_> = targets.map(|target| filled(target["expr"].as_str().unwrap())).collect();
        let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
        let queries = variables.filter_map(|variable| variable["query"].as_str()?.strip_prefix("label_values("));
        expressions.extend(queries.map(|query| query.split(',').next().unwrap().to_owned()));
        for rule in self.rules() {
            let query = [" == ", " > ", " < ", " and "].iter().fold(
                rule["query"].as_str().unwrap().split_whitespace().collect::<Vec<_>>().join(" "),
                |query, operator| query.replace(operator, "\n"),
            );
            expressions.extend(query.lines().map(str::to_owned));
        }
        expressions
    }
}

#[test]
fn rules_and_panels_have_data_and_alerts_fire() {
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        succeed(Command::new("promtool").args(arguments).current_dir(Path::new(OPS).join("prometheus")));
    }
    let folder = Folder::new();
    let (endpoint, postgres) = (Endpoint::acknowledging(), PostgresServer::start());
    folder.write("secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let relay = format!("--backup-every=1h --relay=http://{}/ --relay-secret-file=secret", endpoint.address);
    let openssl = "req -x509 -nodes -days 1 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -subj /CN=petstore";
    let files = ["-keyout", "certificate.key", "-out", "certificate.pem"];
    succeed(folder.program("openssl").args(openssl.split(' ')).args(files));
    // Reads do not reach the timeout on a busy machine. Writes without standbys do.
    let tls = "--database-timeout=20s --tls-cert=certificate.pem --tls-key=certificate.key";
    let tls = format!("--database-url={} {tls}", postgres.url("postgres"));
    let mut services =
        [Service::start(&folder, "on-sqlite", "http", &relay), Service::start(&folder, "on-postgres", "https", &tls)];
    for service in &services {
        service.send_requests();
        folder.write("metrics", curl(&[&service.url("ops", "/metrics")]));
        succeed(folder.program("sh").args(["-c", "promtool check metrics <metrics"]));
    }
    let prometheus = Prometheus::start(&folder, &services);
    let stop = Stop::default();
    thread::scope(|scope| {
        let _stop = stop.on_drop();
        scope.spawn(|| {
            while !stop.is_requested() {
                services.iter().for_each(Service::send_requests);
                thread::sleep(Duration::from_millis(500));
            }
        });
        check_alerts(&prometheus, &postgres, &folder);
    });
    // A response may come after the end of its scrape.
    within(TIMEOUT, "no alert while all services respond", || !prometheus.is_firing("PetstoreDown"));
    services[0].server.kill();
    prometheus.await_alert("PetstoreDown");
    let broken: Vec<_> = prometheus.rules().into_iter().filter(|rule| rule["health"] != "ok").collect();
    assert!(broken.is_empty(), "{broken:?}");
}

fn check_alerts(prometheus: &Prometheus, postgres: &PostgresServer, folder: &Folder) {
    let scraped = "count(count_over_time(up{job=\"petstore\"}[1m]) > 3)";
    within(TIMEOUT, "scraping both services", || prometheus.values(scraped) == [2.0]);
    let mut missing = prometheus.expressions();
    assert!(!prometheus.has_value("sum(rate(petstore_does_not_exist_total[1m]))"), "the negative control");
    for alert in ["PetstoreStandbysMissing", "PetstoreCertificateRejected"] {
        assert!(!prometheus.is_firing(alert), "{alert} fires before its cause");
    }
    prometheus.await_alert("PetstoreCertificateExpires");
    folder.write("certificate.pem", "damaged");
    prometheus.await_alert("PetstoreCertificateRejected");
    // Commits wait for a standby that does not exist.
    postgres.set("synchronous_standby_names", "*");
    prometheus.await_alert("PetstoreStandbysMissing");
    // A write fails only after the database's timeout, which tests set far away.
    within(3 * TIMEOUT, "PetstoreWritesFail", || prometheus.is_firing("PetstoreWritesFail"));
    assert!(!prometheus.is_firing("PetstoreReadsFail"), "only writes fail");
    // Causes the 5xx responses that some expressions count.
    postgres.control(&["stop", "-m", "immediate"]);
    within(TIMEOUT, "data for every expression", || {
        missing.retain(|expression| !prometheus.has_value(expression));
        missing.is_empty()
    });
    prometheus.await_alert("PetstoreReadsFail");
    prometheus.await_alert("PetstorePostgresConnectionsDown");
}
