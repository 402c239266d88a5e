//! Exports finished spans to the collector, in batches, in its own task.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::client::Client;
use super::{Resource, Settings, Span, encode};
use crate::telemetry::metrics::Counter;

/// Maximum time to send the last spans at the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// First and longest pause after a failure. Each pause doubles the previous one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The task that exports spans.
#[derive(Debug)]
pub struct Exporting {
    stop: watch::Sender<bool>,
    worker: JoinHandle<()>,
    lost: Arc<Counter>,
}

struct Worker {
    client: Client,
    resource: Value,
    queue: mpsc::Receiver<Span>,
    lost: Arc<Counter>,
    stop: watch::Receiver<bool>,
    timeout: Duration,
    delay: Duration,
    batch: usize,
    /// Whether the failure was logged: once per outage.
    is_failing: bool,
}

/// Why the collector did not accept a batch.
struct Refused {
    why: String,
    /// Whether to retry: for responses, the statuses that the protocol names.
    again: bool,
}

impl Exporting {
    pub(super) fn start(
        settings: Settings,
        resource: &Resource<'_>,
        queue: mpsc::Receiver<Span>,
        lost: Arc<Counter>,
    ) -> Result<Self, String> {
        let (stop, stopped) = watch::channel(false);
        let worker = Worker {
            client: Client::new(settings.endpoint, settings.headers, settings.certificate.as_deref())?,
            resource: encode::resource(resource, &settings.attributes),
            queue,
            lost: Arc::clone(&lost),
            stop: stopped,
            timeout: settings.timeout,
            delay: settings.delay,
            batch: settings.batch,
            is_failing: false,
        };
        Ok(Self { stop, worker: tokio::spawn(worker.run()), lost })
    }

    /// Sends the queued spans, within 3 s. Later spans are lost.
    pub async fn flush(self) {
        self.stop.send_replace(true);
        if timeout(FLUSH_TIMEOUT, self.worker).await.is_err() {
            tracing::warn!("the last spans were not taken in time");
        }
        let lost = self.lost.get();
        if lost > 0 {
            tracing::warn!(lost, "spans were lost, since the collector took them too slowly or not at all");
        }
    }
}

impl Worker {
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
            let waited = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // After the close, the queue returns its remaining spans and then `None`.
                Ok(_) = self.stop.wait_for(|stop| *stop), if !self.queue.is_closed() => self.queue.close(),
                span = self.queue.recv() => match span {
                    Some(span) => spans.push(span),
                    None => break,
                },
                () = waited => break,
            }
            due.get_or_insert_with(|| Instant::now() + self.delay);
        }
        spans
    }

    /// Sends a batch, retrying until it is accepted. Meanwhile the queue fills; further spans are lost.
    async fn send(&mut self, spans: &[Span]) {
        let body = Bytes::from(encode::request(&self.resource, spans));
        let mut pause = PAUSES.0;
        loop {
            let refused = match timeout(self.timeout, self.client.post(body.clone())).await {
                Ok(Ok(status)) if status.is_success() => break,
                Ok(Ok(status)) => Refused { why: format!("it answers {status}"), again: may_be_taken_later(status) },
                Ok(Err(error)) => Refused { why: error.to_string(), again: true },
                Err(_) => Refused { why: "it does not answer in time".into(), again: true },
            };
            if !std::mem::replace(&mut self.is_failing, true) {
                let Refused { why, .. } = &refused;
                tracing::warn!(why, "the collector takes no spans; no more is said of it until it does");
            }
            if !refused.again || *self.stop.borrow() {
                spans.iter().for_each(|_| self.lost.increment());
                return;
            }
            tokio::select! {
                () = sleep(pause) => pause = (pause * 2).min(PAUSES.1),
                // One more attempt, which is the last.
                _ = self.stop.wait_for(|stop| *stop) => {}
            }
        }
        if std::mem::take(&mut self.is_failing) {
            tracing::info!(lost = self.lost.get(), "the collector takes spans again");
        }
    }
}

/// By the protocol's list; any other refusal is for good.
const fn may_be_taken_later(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}
