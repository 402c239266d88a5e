//! What takes finished spans to the collector: in batches, in a task of its own.

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

/// How long the end of the process waits for the last spans to be sent.
const LAST_WAIT: Duration = Duration::from_secs(3);
/// The first pause after a collector could not be reached; it doubles up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The task that sends spans.
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
    /// Whether the log has been told: once for each time that it fails.
    is_failing: bool,
}

/// Why a batch was not taken.
struct Refused {
    why: String,
    /// Whether it may be taken later: of answers, those that the protocol names.
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

    /// Sends what there is, within three seconds. Spans that end afterwards are lost.
    pub async fn flush(self) {
        self.stop.send_replace(true);
        if timeout(LAST_WAIT, self.worker).await.is_err() {
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

    /// The next batch: full, or as full as it became while its first span waited. Nothing once all is sent.
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
                // What is left in the queue is given out, and then nothing.
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

    /// Sends a batch, as often as it takes: meanwhile the queue fills, and beyond it spans are lost.
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
