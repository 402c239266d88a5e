//! Traces, sent to a collector on a real socket, in a build with the feature `otlp`.
//!
//! The tests need two threads, because waiting for a log line blocks one while the collector responds.

mod collector;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::Ordering;

use expect_test::expect;
use serde_json::Value;
use tokio::net::TcpListener;

use collector::Collector;
use testkit::postgres::free_port;
use testkit::{Certificate, Folder, Request, Server, Shop, Signal, new_pet};

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
    command.env("OTEL_BSP_SCHEDULE_DELAY", "50").env("OTEL_EXPORTER_OTLP_TIMEOUT", "60000");
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
    let mut lines: Vec<_> = attributes.as_array().unwrap().iter().map(|attribute| format!("{attribute}\n")).collect();
    lines.sort();
    lines.concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_is_a_span_of_its_callers_trace() {
    let mut collector = Collector::start().await;
    let environment = [
        ("OTEL_SERVICE_NAME", "shop"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=hidden,host.name=till"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s3cret"),
    ];
    let (shop, server) = serve(&collector.url(), "", &environment);

    let request = traced(&server, "/v1/pets?limit=3", true).key(&shop.key);
    let request = request.header("x-request-id", &format!("mine-{}", shop.key)).header("user-agent", &shop.key);
    request.header("tracestate", "a=b").send().await;
    let mut export = collector.export().await;

    assert_eq!(export.head[0], "post /v1/traces http/1.1");
    for header in ["content-type: application/x-protobuf", "api-key: s3cret", &format!("host: {}", collector.address)] {
        assert!(export.head.iter().any(|line| line == header), "{header}: {:?}", export.head);
    }
    let resource = &mut export.body["resourceSpans"][0];
    let resource_attributes = lines(&resource["resource"]["attributes"].take());
    let span = &mut resource["scopeSpans"][0]["spans"][0];
    let span_attributes = lines(&span["attributes"].take());
    let times = ["startTimeUnixNano", "endTimeUnixNano"].map(|name| span[name].as_str().unwrap().to_owned());
    assert!(times[0] < times[1], "{times:?}");
    let id = span["spanId"].as_str().unwrap().to_owned();
    let mut shown = format!("{}\n\nresource:\n{resource_attributes}\nspan:\n{span_attributes}", export.body);
    for varying in [&times[0], &times[1], &id, env!("CARGO_PKG_VERSION")] {
        shown = shown.replace(varying, "…");
    }
    expect![[r#"
        {"resourceSpans":[{"resource":{"attributes":null},"scopeSpans":[{"scope":{"name":"petstore"},"spans":[{"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"…","traceState":"a=b","parentSpanId":"00f067aa0ba902b7","name":"GET /v1/pets","kind":"SPAN_KIND_SERVER","startTimeUnixNano":"…","endTimeUnixNano":"…","attributes":null,"status":{},"flags":769}]}]}]}

        resource:
        {"key":"deployment.environment.name","value":{"stringValue":"production"}}
        {"key":"host.name","value":{"stringValue":"till"}}
        {"key":"service.name","value":{"stringValue":"shop"}}
        {"key":"service.version","value":{"stringValue":"…"}}

        span:
        {"key":"http.request.method","value":{"stringValue":"GET"}}
        {"key":"http.response.header.x-request-id","value":{"arrayValue":{"values":[{"stringValue":"mine-pet_live_[hidden]"}]}}}
        {"key":"http.response.status_code","value":{"intValue":"200"}}
        {"key":"http.route","value":{"stringValue":"/v1/pets"}}
        {"key":"url.path","value":{"stringValue":"/v1/pets"}}
        {"key":"url.scheme","value":{"stringValue":"http"}}
        {"key":"user_agent.original","value":{"stringValue":"pet_live_[hidden]"}}
    "#]].assert_eq(&shown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_has_spans_for_its_wait_and_its_commit() {
    let mut collector = Collector::start().await;
    for shop in Shop::on_every_database() {
        let mut command = command(&shop, "");
        let server = Server::start(command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()));
        let request = Request::new(server.store(), "POST", "/v1/pets").key(&shop.key).json(new_pet("Rex"));
        assert_eq!(request.send().await.status(), 201);

        let spans = collector.spans(3).await;
        let [wait, commit, request] = &spans[..] else { panic!("{spans:#?}") };
        let names = [wait, commit, request].map(|span| span["name"].as_str().unwrap());
        assert_eq!(names, ["write queue", "commit", "POST /v1/pets"]);
        for child in [wait, commit] {
            assert_eq!((&child["traceId"], &child["parentSpanId"]), (&request["traceId"], &request["spanId"]));
        }
        let time = |span: &Value, name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
        let ends = [
            time(request, "startTimeUnixNano"),
            time(wait, "startTimeUnixNano"),
            time(wait, "endTimeUnixNano"),
            time(commit, "endTimeUnixNano"),
            time(request, "endTimeUnixNano"),
        ];
        assert!(ends.is_sorted(), "{ends:?}");
        assert_eq!(time(wait, "endTimeUnixNano"), time(commit, "startTimeUnixNano"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn span_describes_the_response() {
    let mut collector = Collector::start().await;
    let (_shop, server) = serve(&collector.url(), "", &[]);
    let mut seen = Vec::new();
    for (method, path) in [("GET", "/v1/pets/7"), ("BREW", "/elsewhere"), ("GET", "/openapi.json"), ("GET", "/sign-in")]
    {
        // A health check has no span.
        Request::new(server.store(), "GET", "/readyz").send().await;
        Request::new(server.store(), method, path).send().await;
        let spans = collector.spans(1).await;
        let [span] = &spans[..] else { panic!("{spans:#?}") };
        assert_eq!(span["status"]["code"], Value::Null, "a client error is not an error of the service");
        let shown = |key| {
            attribute(span, key).as_object().map_or(String::new(), |value| value.values().next().unwrap().to_string())
        };
        let [method, route, status] = ["http.request.method", "http.route", "http.response.status_code"].map(shown);
        seen.push(format!("{} {method} {route} {status}\n", span["name"]));
    }
    expect![[r#"
        "GET /v1/pets/{petId}" "GET" "/v1/pets/{petId}" "401"
        "HTTP" "_OTHER"  "404"
        "GET /openapi.json" "GET" "/openapi.json" "200"
        "GET /sign-in" "GET" "/sign-in" "200"
    "#]]
    .assert_eq(&seen.concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_without_trace_starts_one_that_is_logged() {
    let mut collector = Collector::start().await;
    let (_shop, server) = serve(&collector.url(), "--log-requests", &[]);
    let mut traces = BTreeSet::new();
    for _ in 0..2 {
        Request::new(server.store(), "GET", "/v1/pets").send().await;
        let span = collector.spans(1).await.remove(0);
        assert_eq!(server.logged("request")["trace_id"], span["traceId"]);
        assert_eq!(span["parentSpanId"], Value::Null);
        traces.insert(span["traceId"].as_str().unwrap().to_owned());
    }
    assert_eq!(traces.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sampling_follows_the_caller_then_the_ratio() {
    let mut collector = Collector::start().await;
    let sampler = [("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0")];
    let (_shop, server) = serve(&collector.url(), "--log-requests", &sampler);
    traced(&server, "/v1/pets", false).send().await;
    assert_eq!(server.logged("request")["trace_id"], TRACE, "the log has the id of a trace that is not sampled");
    Request::new(server.store(), "GET", "/v1/pets").send().await;
    assert_eq!(server.logged("request")["trace_id"], Value::Null);
    traced(&server, "/v1/pets/1", true).send().await;
    let spans = collector.spans(1).await;
    assert!(spans.len() == 1 && spans[0]["name"] == "GET /v1/pets/{petId}", "{spans:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_of_the_collector_is_logged_once() {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let (shop, server) = serve(&format!("http://{address}"), "", &[]);
    for _ in 0..20 {
        assert_eq!(traced(&server, "/v1/pets", true).key(&shop.key).send().await.status(), 200);
    }
    let line = server.logged("cannot export spans");
    assert!(line["why"].as_str().unwrap().contains("refused"), "{line}");

    let mut collector = Collector::on(TcpListener::bind(address).await.unwrap(), None, 503);
    let refused = collector.spans(1).await;
    collector.status.store(200, Ordering::SeqCst);
    while collector.spans(1).await != refused {}
    server.logged("exporting spans again");
    let log = server.end_by(Signal::TERM).log();
    assert!(!log.contains("spans"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_beyond_the_queue_are_dropped_and_counted() {
    // The kernel accepts the connection, and no process reads the request.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let queue = [("OTEL_BSP_MAX_QUEUE_SIZE", "2"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")];
    let (_shop, server) = serve(&format!("http://{}", silent.local_addr().unwrap()), "", &queue);
    for _ in 0..10 {
        traced(&server, "/v1/pets", true).send().await;
    }
    let stopped = server.end_by(Signal::TERM);
    assert_eq!(stopped.code, Some(0), "the collector does not prevent the stop");
    // The exporter may hold one span beside the two in the queue.
    let is_counted = |dropped| stopped.stderr.contains(&format!("\"dropped_span_count\":{dropped},"));
    assert!(is_counted(7) || is_counted(8), "{}", stopped.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_spans_are_sent_before_the_end() {
    let mut collector = Collector::start().await;
    let (_shop, server) = serve(&collector.url(), "", &[("OTEL_BSP_SCHEDULE_DELAY", "3600000")]);
    for _ in 0..3 {
        traced(&server, "/v1/pets", true).send().await;
    }
    let stopped = server.end_by(Signal::TERM);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(collector.spans(1).await.len(), 3);
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

    // Without a file, the operating system's authorities count.
    for wrong in ["wrong.pem", ""] {
        let server = serve(wrong);
        traced(&server, "/v1/pets", true).send().await;
        let line = server.logged("cannot export spans");
        assert!(line["why"].as_str().unwrap().contains("certificate"), "{line}");
        server.end_by(Signal::TERM);
    }
    let server = serve("right.pem");
    traced(&server, "/v1/pets", true).send().await;
    assert_eq!(collector.spans(1).await.len(), 1);
    server.end_by(Signal::TERM);

    let line = serve("missing.pem").logged("cannot export traces");
    assert!(line["why"].as_str().unwrap().starts_with("missing.pem: "), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_exported_without_an_endpoint() {
    let collector = Collector::start().await;
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
    for disabled in [("NONE", ""), ("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")] {
        let shop = Shop::on_sqlite();
        let mut command = command(&shop, "--log-requests");
        if disabled.0 != "NONE" {
            command.env(endpoint.0, &endpoint.1).env(disabled.0, disabled.1);
        }
        let server = Server::start(command);
        Request::new(server.store(), "GET", "/v1/pets").send().await;
        assert_eq!(server.logged("request")["trace_id"], Value::Null, "{disabled:?}");
    }
}
