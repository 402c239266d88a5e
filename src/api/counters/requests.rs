//! Metrics of requests and connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use bounded_http::{Connections, Expired};
use parking_lot::Mutex;

use super::per_minute::Requests;
use crate::api::operations::{Listener, Operation};
use crate::telemetry::Sampler;
use crate::telemetry::metrics::{Counter, Exposition, Histogram};

/// The label of all unknown paths, so that clients cannot create labels.
const UNMATCHED: &str = "unmatched";

/// The label of simulated responses.
const SIMULATED: (&str, &str) = ("simulated", "true");

/// The last one stands for all others, which clients can make up.
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"];

/// The statuses of responses. All others share a counter.
const STATUSES: [u16; 24] = [
    200, 201, 202, 204, 303, 304, 307, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 429, 444, 500, 502, 503,
    504,
];

/// Labels of connections that were closed at a deadline.
const EXPIRED: [(&str, Expired); 4] =
    [("handshake", Expired::Handshake), ("head", Expired::Head), ("idle", Expired::Idle), ("answer", Expired::Answer)];

/// Counters of the requests of all listeners, and of the connections of each.
#[derive(Debug)]
pub struct Traffic {
    /// In the order of [`Operation::ALL`], each with its real and its simulated responses.
    operations: Vec<[Route; 2]>,
    /// The pages that were requested, by their path templates.
    pages: Mutex<BTreeMap<String, Arc<Route>>>,
    pub unmatched: Route,
    in_flight: AtomicI64,
    abandoned: Counter,
    /// Samples the log of requests refused with 503.
    pub refusals: Sampler,
    /// In the order of the variants of [`Listener`].
    connections: [Connections; 3],
}

/// Counters of the requests to an operation or page. Operations at one path have different methods.
#[derive(Debug)]
pub struct Route {
    /// The path template, as metrics and the log show it.
    pub template: Box<str>,
    /// True for simulated responses, which have a label so that alerts leave them out.
    pub is_simulated: bool,
    /// In the order of [`METHODS`].
    methods: [Answered; METHODS.len()],
}

#[derive(Debug, Default)]
struct Answered {
    /// In the order of [`STATUSES`], followed by all others.
    statuses: [Counter; STATUSES.len() + 1],
    duration: Histogram,
}

/// A request in progress. Dropped without [`Self::end`], it counts as abandoned by its client.
#[derive(Debug)]
pub struct RequestInProgress<'a> {
    traffic: &'a Traffic,
    method: usize,
    pub began: Instant,
    ended: bool,
}

impl Traffic {
    pub fn new() -> Self {
        let routes =
            |operation: Operation| [false, true].map(|is_simulated| Route::new(operation.path(), is_simulated));
        Self {
            operations: Operation::ALL.into_iter().map(routes).collect(),
            pages: Mutex::default(),
            unmatched: Route::new(UNMATCHED, false),
            in_flight: AtomicI64::new(0),
            abandoned: Counter::default(),
            refusals: Sampler::new(|cause, requests| tracing::warn!(requests, cause, "requests refused")),
            connections: Default::default(),
        }
    }

    pub fn operation(&self, operation: Operation, is_simulated: bool) -> &Route {
        &self.operations[operation as usize][usize::from(is_simulated)]
    }

    /// The route of a page, by its path template.
    pub fn page(&self, template: &str) -> Arc<Route> {
        let mut pages = self.pages.lock();
        Arc::clone(pages.entry(template.to_owned()).or_insert_with(|| Arc::new(Route::new(template, false))))
    }

    /// Counts the requests to the operations of the API; not health checks, pages and files.
    pub fn api_requests(&self) -> Requests {
        let api = Operation::documented().flat_map(|operation| &self.operations[operation as usize]);
        let mut total = Requests::default();
        for answered in api.flat_map(|route| &route.methods) {
            for (position, count) in answered.statuses.iter().map(Counter::get).enumerate() {
                let is_error = STATUSES.get(position).is_some_and(|status| *status >= 400);
                *(if is_error { &mut total.failed } else { &mut total.succeeded }) += count;
            }
        }
        total
    }

    pub const fn connections(&self, listener: Listener) -> &Connections {
        &self.connections[listener as usize]
    }

    /// Starts counting a request.
    pub fn begin(&self, method: &Method) -> RequestInProgress<'_> {
        let method = METHODS.iter().position(|known| *known == method.as_str()).unwrap_or(METHODS.len() - 1);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        RequestInProgress { traffic: self, method, began: Instant::now(), ended: false }
    }

    pub fn write(&self, out: &mut Exposition) {
        let pages: Vec<_> = self.pages.lock().values().cloned().collect();
        let routes = || self.operations.iter().flatten().chain(pages.iter().map(Arc::as_ref)).chain([&self.unmatched]);
        let methods = || routes().flat_map(|route| route.methods().map(move |(name, method)| (route, name, method)));

        let mut requests = out.family("petstore_http_requests_total");
        for (route, method, answered) in methods() {
            for (status, count) in answered.statuses() {
                let labels = [("route", &*route.template), ("method", method), ("status", &status), SIMULATED];
                requests.sample(route.own(&labels), count);
            }
        }
        let mut durations = out.family("petstore_http_request_duration_seconds");
        for (route, method, answered) in methods() {
            let labels = [("route", &*route.template), ("method", method), SIMULATED];
            durations.spread(route.own(&labels), &answered.duration);
        }
        // A decrement may become visible before its increment.
        out.value("petstore_http_requests_in_flight", self.in_flight.load(Ordering::Relaxed).max(0));
        out.value("petstore_http_requests_abandoned_total", self.abandoned.get());
        self.write_connections(out);
    }

    fn write_connections(&self, out: &mut Exposition) {
        let listeners = Listener::ALL.map(|listener| (("listener", listener.as_str()), self.connections(listener)));
        let mut count = |name, of: fn(&Connections) -> u64| {
            out.family(name).samples(listeners.map(|(listener, connections)| ([listener], of(connections))));
        };
        count("petstore_connections_open", Connections::open);
        count("petstore_connections_accepted_total", Connections::accepted);
        count("petstore_connections_refused_total", Connections::refused);
        count("petstore_http_requests_malformed_total", Connections::malformed);
        let expired = listeners.into_iter().flat_map(|(listener, connections)| {
            EXPIRED.map(|(reason, what)| ([listener, ("reason", reason)], connections.expired(what)))
        });
        out.family("petstore_connections_expired_total").samples(expired);
    }
}

impl Route {
    fn new(template: &str, is_simulated: bool) -> Self {
        Self { template: template.into(), is_simulated, methods: Default::default() }
    }

    /// Returns `labels` without the last one, [`SIMULATED`], if it does not apply.
    fn own<'l>(&self, labels: &'l [(&'static str, &'l str)]) -> &'l [(&'static str, &'l str)] {
        &labels[..labels.len() - usize::from(!self.is_simulated)]
    }

    /// The path template. `None` for unknown paths.
    pub fn known_template(&self) -> Option<&str> {
        (*self.template != *UNMATCHED).then_some(&self.template)
    }

    /// The methods with requests.
    fn methods(&self) -> impl Iterator<Item = (&'static str, &Answered)> {
        METHODS.into_iter().zip(&self.methods).filter(|(_, answered)| answered.statuses().next().is_some())
    }
}

impl Answered {
    /// The statuses with responses.
    fn statuses(&self) -> impl Iterator<Item = (String, u64)> {
        let names = STATUSES.iter().map(u16::to_string).chain(["other".to_owned()]);
        names.zip(self.statuses.iter().map(Counter::get)).filter(|(_, count)| *count > 0)
    }
}

impl RequestInProgress<'_> {
    /// The method of the request. `None` for one that a client may have made up.
    pub fn method(&self) -> Option<&'static str> {
        METHODS[..METHODS.len() - 1].get(self.method).copied()
    }

    /// Counts the response. Returns the duration of the request.
    pub fn end(&mut self, route: &Route, status: StatusCode) -> Duration {
        let took = self.began.elapsed();
        let status = STATUSES.iter().position(|known| *known == status.as_u16()).unwrap_or(STATUSES.len());
        let answered = &route.methods[self.method];
        answered.statuses[status].increment();
        answered.duration.observe_duration(took);
        self.ended = true;
        took
    }
}

impl Drop for RequestInProgress<'_> {
    fn drop(&mut self) {
        self.traffic.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !self.ended {
            self.traffic.abandoned.increment();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_and_abandoned_ones_apart() {
        let traffic = Traffic::new();
        traffic.begin(&Method::GET).end(&traffic.page("/a/{id}"), StatusCode::OK);
        traffic.begin(&Method::GET).end(&traffic.page("/a/{id}"), StatusCode::OK);
        let odd = Method::from_bytes(b"BREW").unwrap();
        traffic.begin(&odd).end(&traffic.unmatched, StatusCode::IM_A_TEAPOT);
        drop(traffic.begin(&Method::GET));
        let _now = traffic.begin(&Method::GET);

        let mut out = Exposition::default();
        traffic.write(&mut out);
        let text = out.0;
        for line in [
            r#"petstore_http_requests_total{route="/a/{id}",method="GET",status="200"} 2"#,
            r#"petstore_http_requests_total{route="unmatched",method="other",status="other"} 1"#,
            r#"petstore_http_request_duration_seconds_count{route="/a/{id}",method="GET"} 2"#,
            "petstore_http_requests_in_flight 1",
            "petstore_http_requests_abandoned_total 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} is missing:\n{text}");
        }
    }
}
