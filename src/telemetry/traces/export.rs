//! Exports finished spans to the collector, in batches, in its own task.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;

use super::{Settings, Span, encode};
use crate::net::http_client::Client;
use crate::net::regular_file;
use crate::runtime::backoff::Backoff;
use crate::telemetry::metrics::Counter;
use crate::tls::{self, Authorities};

/// Maximum time to send the last spans at the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// Pauses between two attempts to send a batch.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Exporting {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    lost: Arc<Counter>,
}

struct Exporter {
    client: Client,
    headers: HeaderMap,
    resource: Value,
    queue: mpsc::Receiver<Span>,
    lost: Arc<Counter>,
    stop: watch::Receiver<bool>,
    timeout: Duration,
    delay: Duration,
    batch: usize,
    /// Set during an outage, which is logged once.
    is_failing: bool,
}

impl Exporting {
    /// Fails if a certificate is unusable, or missing for `https`.
    pub(super) fn start(settings: Settings, queue: mpsc::Receiver<Span>, lost: Arc<Counter>) -> Result<Self, String> {
        let (stop, stopped) = watch::channel(false);
        let exporter = Exporter {
            client: Client::new(&settings.endpoint, connector(&settings)?),
            headers: settings.headers,
            resource: encode::resource(&settings.attributes),
            queue,
            lost: Arc::clone(&lost),
            stop: stopped,
            timeout: settings.timeout,
            delay: settings.delay,
            batch: settings.batch,
            is_failing: false,
        };
        Ok(Self { stop, task: tokio::spawn(exporter.run()), lost })
    }

    /// Sends the queued spans, within 3 s. Later spans are lost.
    pub async fn flush(self) {
        self.stop.send_replace(true);
        if timeout(FLUSH_TIMEOUT, self.task).await.is_err() {
            tracing::warn!("last spans not exported in time");
        }
        let lost = self.lost.get();
        if lost > 0 {
            tracing::warn!(lost, "spans lost, the collector rejected them or was too slow");
        }
    }
}

impl Exporter {
    async fn run(mut self) {
        loop {
            let spans = self.gather().await;
            if spans.is_empty() {
                break;
            }
            self.send(&spans).await;
        }
    }

    /// Returns the next batch: full, or what arrived within the delay of its first span. Empty when all spans are sent.
    async fn gather(&mut self) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut due = None;
        while spans.len() < self.batch {
            tokio::select! {
                biased;
                // After the close, the queue returns its remaining spans and then `None`.
                Ok(_) = self.stop.wait_for(|stop| *stop), if !self.queue.is_closed() => self.queue.close(),
                span = self.queue.recv() => match span {
                    Some(span) => spans.push(span),
                    None => break,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => break,
            }
            due.get_or_insert_with(|| Instant::now() + self.delay);
        }
        spans
    }

    /// Sends a batch, retrying until it is accepted. Meanwhile the queue fills; further spans are lost.
    async fn send(&mut self, spans: &[Span]) {
        let body = encode::request(&self.resource, spans);
        let mut backoff = Backoff::new(MIN_PAUSE, MAX_PAUSE);
        loop {
            let (why, is_retriable) = match self.client.post(&self.headers, &body, self.timeout).await {
                Ok(response) if response.status.is_success() => break,
                Ok(response) => (format!("status {}", response.status), is_retriable(response.status)),
                Err(error) => (error.to_string(), true),
            };
            if !std::mem::replace(&mut self.is_failing, true) {
                tracing::warn!(why, "cannot export spans, retrying");
            }
            if !is_retriable || *self.stop.borrow() {
                self.lost.add(spans.len() as u64);
                return;
            }
            tokio::select! {
                () = sleep(backoff.next_delay()) => {}
                // One more attempt, which is the last.
                _ = self.stop.wait_for(|stop| *stop) => {}
            }
        }
        if std::mem::take(&mut self.is_failing) {
            tracing::info!(lost = self.lost.get(), "exporting spans again");
        }
    }
}

fn connector(settings: &Settings) -> Result<Option<TlsConnector>, String> {
    match (settings.endpoint.scheme_str(), &settings.certificate) {
        (Some("https"), Some(file)) => {
            let pem = regular_file::read_at_start(Path::new(file)).map_err(|error| format!("{file}: {error}"))?;
            let authorities = Authorities::new(tls::certificates(&pem, file)?);
            tls::connector(authorities.ok_or_else(|| format!("{file} has no usable certificate"))?, &[b"http/1.1"])
                .map(Some)
        }
        (Some("https"), None) => Err(
            "an https:// endpoint needs OTEL_EXPORTER_OTLP_CERTIFICATE, a file with the certificate authorities to \
                 trust; on Debian, /etc/ssl/certs/ca-certificates.crt"
                .into(),
        ),
        _ => Ok(None),
    }
}

/// Returns whether the protocol demands a retry.
const fn is_retriable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}
