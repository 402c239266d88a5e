//! Traces, sent to a collector on a real socket.
//!
//! The tests need two threads, because waiting for a log line blocks one while the collector responds.

mod collector;

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::Ordering;

use expect_test::expect;
use serde_json::Value;
use tokio::net::TcpListener;

use collector::Collector;
use testkit::{Certificate, Folder, Request, Server, Shop, Signal};

/// The ids in the examples of W3C Trace Context.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// Serves a new database, and exports every 50 ms to `endpoint`, with these variables too.
fn serve(endpoint: &str, flags: &str, environment: &[(&str, &str)]) -> (Shop, Server) {
    let shop = Shop::on_sqlite();
    let mut command = command(&shop, flags);
    let server = Server::start(command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).envs(environment.iter().copied()));
    (shop, server)
}

/// A command that serves, and exports every 50 ms if there is an endpoint.
fn command(shop: &Shop, flags: &str) -> Command {
    let mut command = shop.database.serve_command(flags);
    command.env("OTEL_BSP_SCHEDULE_DELAY", "50");
    command
}

/// A request within the caller's trace, with the caller's sampling decision.
fn traced(server: &Server, path: &str, sampled: bool) -> Request {
    let parent = format!("00-{TRACE}-{CALLER}-0{}", u8::from(sampled));
    Request::new(server.address("store"), "GET", path).header("traceparent", &parent)
}

/// An attribute of a span or a resource.
fn attribute<'a>(of: &'a Value, key: &str) -> &'a Value {
    let found = of["attributes"].as_array().unwrap().iter().find(|attribute| attribute["key"] == key);
    found.map_or(&Value::Null, |attribute| &attribute["value"])
}

/// The attributes of a span or a resource, a line each.
fn lines(attributes: &Value) -> String {
    attributes.as_array().unwrap().iter().map(|attribute| format!("{attribute}\n")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_is_a_span_of_its_callers_trace() {
    let mut collector = Collector::start().await;
    let environment = [("OTEL_SERVICE_NAME", "shop"), ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s3cret")];
    let (shop, server) = serve(&collector.url(), "", &environment);

    let request = traced(&server, "/v1/pets?limit=3", true).key(&shop.key);
    let request = request.header("x-request-id", &format!("mine-{}", shop.key)).header("user-agent", &shop.key);
    request.header("tracestate", "a=b").send().await;
    let mut body = collector.export().await.body;

    let resource = &mut body["resourceSpans"][0];
    let resource_attributes = lines(&resource["resource"]["attributes"].take());
    let span = &mut resource["scopeSpans"][0]["spans"][0];
    let span_attributes = lines(&span["attributes"].take());
    let times = ["startTimeUnixNano", "endTimeUnixNano"].map(|name| span[name].as_str().unwrap().to_owned());
    assert!(times[0] < times[1], "{times:?}");
    let id = span["spanId"].as_str().unwrap().to_owned();
    let mut shown = format!("{body}\n\nresource:\n{resource_attributes}\nspan:\n{span_attributes}");
    for varying in [&times[0], &times[1], &id, env!("CARGO_PKG_VERSION")] {
        shown = shown.replace(varying, "…");
    }
    expect![[r#"
        {"resourceSpans":[{"resource":{"attributes":null},"scopeSpans":[{"scope":{"name":"petstore","version":"…"},"spans":[{"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"…","name":"GET /v1/pets","kind":2,"startTimeUnixNano":"…","endTimeUnixNano":"…","attributes":null,"parentSpanId":"00f067aa0ba902b7","traceState":"a=b"}]}]}]}

        resource:
        {"key":"service.version","value":{"stringValue":"…"}}
        {"key":"deployment.environment.name","value":{"stringValue":"production"}}
        {"key":"service.name","value":{"stringValue":"shop"}}

        span:
        {"key":"http.request.method","value":{"stringValue":"GET"}}
        {"key":"url.scheme","value":{"stringValue":"http"}}
        {"key":"url.path","value":{"stringValue":"/v1/pets"}}
        {"key":"network.protocol.version","value":{"stringValue":"1.1"}}
        {"key":"user_agent.original","value":{"stringValue":"pet_live_[hidden]"}}
        {"key":"http.route","value":{"stringValue":"/v1/pets"}}
        {"key":"http.response.status_code","value":{"intValue":"200"}}
        {"key":"http.response.header.x-request-id","value":{"arrayValue":{"values":[{"stringValue":"mine-pet_live_[hidden]"}]}}}
    "#]]
    .assert_eq(&shown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_carry_their_headers() {
    let mut collector = Collector::start().await;
    let (_shop, server) = serve(&collector.url(), "", &[("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s3cret")]);
    for _ in 0..2 {
        traced(&server, "/v1/pets", true).send().await;
        let export = collector.export().await;
        assert_eq!(export.head[0], "post /v1/traces http/1.1");
        for header in ["content-type: application/json", "api-key: s3cret", &format!("host: {}", collector.address)] {
            assert!(export.head.iter().any(|line| line == header), "{header}: {:?}", export.head);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn span_describes_the_response() {
    let mut collector = Collector::start().await;
    let (_shop, server) = serve(&collector.url(), "", &[]);
    let mut seen = BTreeSet::new();
    for path in ["/v1/pets/7", "/elsewhere", "/livez", "/readyz", "/openapi.json"] {
        traced(&server, path, true).send().await;
        if path.ends_with('z') {
            continue;
        }
        let span = collector.spans().await.remove(0);
        let shown = |key| {
            attribute(&span, key).as_object().map_or(String::new(), |value| value.values().next().unwrap().to_string())
        };
        assert_eq!(span["status"], Value::Null, "a client error is not an error of the service");
        seen.insert(format!("{} {} {}", span["name"], shown("http.route"), shown("http.response.status_code")));
    }
    assert!(collector.is_idle().await, "health checks are not traced");
    expect![[r#"
        {
            "\"GET /openapi.json\" \"/openapi.json\" \"200\"",
            "\"GET /v1/pets/{petId}\" \"/v1/pets/{petId}\" \"401\"",
            "\"GET\"  \"404\"",
        }
    "#]]
    .assert_eq(&format!("{seen:#?}\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_without_trace_starts_one_that_is_logged() {
    let mut collector = Collector::start().await;
    let (_shop, server) = serve(&collector.url(), "--log-requests", &[]);
    let mut traces = BTreeSet::new();
    for _ in 0..3 {
        Request::new(server.address("store"), "GET", "/v1/pets").send().await;
        let span = collector.spans().await.remove(0);
        assert_eq!(server.logged("request")["trace_id"], span["traceId"]);
        assert_eq!(span["parentSpanId"], Value::Null);
        traces.insert(span["traceId"].as_str().unwrap().to_owned());
    }
    assert_eq!(traces.len(), 3);
    assert!(traces.iter().all(|trace| trace.len() == 32 && trace.bytes().all(|byte| byte.is_ascii_hexdigit())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sampling_follows_the_caller_then_the_ratio() {
    let mut collector = Collector::start().await;
    let sampler = [("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0")];
    let (_shop, server) = serve(&collector.url(), "--log-requests", &sampler);
    traced(&server, "/v1/pets", false).send().await;
    assert_eq!(server.logged("request")["trace_id"], TRACE, "the log has the id of a trace that is not sampled");
    Request::new(server.address("store"), "GET", "/v1/pets").send().await;
    assert_eq!(server.logged("request")["trace_id"], Value::Null);
    assert!(collector.is_idle().await);
    traced(&server, "/v1/pets", true).send().await;
    assert_eq!(collector.spans().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_collector_is_logged_once() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (shop, server) = serve(&format!("http://{address}"), "", &[]);
    for _ in 0..20 {
        assert_eq!(traced(&server, "/v1/pets", true).key(&shop.key).send().await.status(), 200);
    }
    let line = server.logged("cannot export spans, retrying");
    assert!(line["why"].as_str().unwrap().contains("refused"), "{line}");

    let mut collector = Collector::on(TcpListener::bind(address).await.unwrap(), None, 503);
    let refused = collector.spans().await;
    collector.status.store(200, Ordering::SeqCst);
    assert_eq!(collector.spans().await, refused, "rejected spans are sent again");
    server.logged("exporting spans again");
    let log = server.end_by(Signal::TERM).log();
    assert!(!log.contains("spans"), "the outage is logged once: {log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permanently_rejected_spans_are_not_retried() {
    let mut collector = Collector::start().await;
    collector.status.store(400, Ordering::SeqCst);
    let (_shop, server) = serve(&collector.url(), "", &[]);
    traced(&server, "/v1/pets", true).send().await;
    assert_eq!(collector.spans().await.len(), 1);
    assert!(collector.is_idle().await);
    let log = server.end_by(Signal::TERM).log();
    assert!(log.contains("WARN spans lost"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_spans_are_sent_before_the_end() {
    let mut collector = Collector::start().await;
    let (_shop, server) = serve(&collector.url(), "", &[("OTEL_BSP_SCHEDULE_DELAY", "3600000")]);
    for _ in 0..3 {
        traced(&server, "/v1/pets", true).send().await;
    }
    assert!(collector.is_idle().await, "the spans wait for a batch");
    let stopped = server.end_by(Signal::TERM);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(collector.spans().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_collector_does_not_prevent_the_stop() {
    // The kernel accepts the connection, and no process reads the request.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_shop, server) = serve(&format!("http://{}", silent.local_addr().unwrap()), "", &[]);
    traced(&server, "/v1/pets", true).send().await;
    let stopped = server.end_by(Signal::TERM);
    assert_eq!(stopped.code, Some(0));
    assert!(stopped.log().contains("WARN last spans not exported in time"), "{stopped:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_must_present_the_configured_certificate() {
    let folder = Folder::new();
    let right = Certificate::of_localhost(&folder.path(""), "right");
    Certificate::of_localhost(&folder.path(""), "wrong");
    let mut collector = Collector::with(&right).await;
    let url = format!("https://localhost:{}", collector.address.port());
    let shop = Shop::on_sqlite();
    let serve = |file: &str| {
        let mut command = command(&shop, "");
        command.current_dir(folder.path("")).env("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
        Server::start(command.env("OTEL_EXPORTER_OTLP_CERTIFICATE", file))
    };

    let server = serve("wrong.pem");
    traced(&server, "/v1/pets", true).send().await;
    let line = server.logged("cannot export spans, retrying");
    assert!(line["why"].as_str().unwrap().contains("certificate"), "{line}");
    server.end_by(Signal::TERM);

    let server = serve("right.pem");
    traced(&server, "/v1/pets", true).send().await;
    assert_eq!(collector.spans().await.len(), 1);
    server.end_by(Signal::TERM);

    let server = serve("");
    let line = server.logged("cannot export traces");
    assert!(line["why"].as_str().unwrap().contains("OTEL_EXPORTER_OTLP_CERTIFICATE"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_exported_without_an_endpoint() {
    let shop = Shop::on_sqlite();
    let server = Server::start(command(&shop, "--log-requests"));
    Request::new(server.address("store"), "GET", "/v1/pets").send().await;
    assert_eq!(server.logged("request")["trace_id"], Value::Null);
}
