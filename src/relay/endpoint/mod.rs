//! A web server as the receiver, by Standard Webhooks 1.0 (github.com/standard-webhooks/standard-webhooks).

mod delays;
mod secrets;
mod url;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::http::header::{CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{Broker, Published, Stream};
use crate::clock::Clock;
use crate::domain::{AccountId, Deployment, Message, MessageId, Timestamp};
use crate::http_client::{Client, Response};
use crate::representation::message_json;
use crate::tls;
use delays::Delays;
use parking_lot::Mutex;
pub use secrets::Secrets;
pub use url::EndpointUrl;

/// Number of deliveries that run at once.
const AT_ONCE: usize = 16;

/// Time that other messages wait for a response that takes longer.
const PATIENCE: Duration = Duration::from_millis(200);

/// Maximum time until the head of the response, including the connection.
const TIMEOUT: Duration = Duration::from_secs(10);

pub struct Endpoint {
    url: EndpointUrl,
    secrets: Secrets,
    clock: Clock,
    delays: Arc<Mutex<Delays>>,
}

pub struct Deliveries {
    sender: Arc<Sender>,
    delays: Arc<Mutex<Delays>>,
    in_flight: HashSet<MessageId>,
    running: JoinSet<(Delivery, Result<(), Failure>)>,
    /// When the last acknowledgement arrived.
    acknowledged_at: Option<Instant>,
}

/// A message in flight.
struct Delivery {
    account: AccountId,
    id: MessageId,
    began: Instant,
}

/// Sends messages, each from a task of its own.
struct Sender {
    client: Client,
    secrets: Secrets,
    clock: Clock,
}

/// Why a message was not acknowledged, for the log.
enum Failure {
    /// The endpoint failed, or demands a pause.
    Endpoint(String, Option<Duration>),
    /// The endpoint rejected this message.
    Message(String),
}

impl Endpoint {
    pub fn new(url: EndpointUrl, secrets: Secrets, clock: Clock) -> Self {
        Self { url, secrets, clock, delays: Arc::default() }
    }

    pub fn secrets(&self) -> Secrets {
        self.secrets.clone()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.url)
    }
}

impl Broker for Endpoint {
    type Stream = Deliveries;

    /// Loads the authorities of the system. Each delivery connects if no connection is open.
    async fn connect(&self, _: Deployment) -> Result<Deliveries, String> {
        let tls = if self.url.is_https() { Some(tls::system_connector(&[b"http/1.1"]).await?) } else { None };
        let client = Client::new(self.url.uri(), tls);
        let sender = Arc::new(Sender { client, secrets: self.secrets.clone(), clock: self.clock.clone() });
        let (in_flight, running, acknowledged_at) = Default::default();
        Ok(Deliveries { sender, delays: Arc::clone(&self.delays), in_flight, running, acknowledged_at })
    }
}

impl Stream for Deliveries {
    /// Takes at most 22 s, so that the relay confirms its lease in time.
    const BATCH: u32 = 2 * AT_ONCE as u32;

    const LEAVES_IN_FLIGHT: bool = true;

    async fn is_connected(&mut self) -> bool {
        true
    }

    fn is_paused(&self) -> bool {
        self.delays.lock().is_paused()
    }

    async fn publish(&mut self, messages: &[Message], published: &mut Published) {
        for message in messages {
            if self.delays.lock().is_delayed(message.id) {
                published.has_delayed = true;
            } else if !self.in_flight.contains(&message.id) {
                while self.running.len() >= AT_ONCE {
                    self.record_next(published).await;
                }
                if self.is_paused() {
                    break;
                }
                self.deliver(message.clone());
            }
        }
        // A full batch is followed by another one.
        if messages.len() < Self::BATCH as usize {
            let _ = timeout(PATIENCE, self.finish(published)).await;
        }
        published.has_in_flight = !self.running.is_empty();
    }

    async fn finish(&mut self, published: &mut Published) {
        while !self.running.is_empty() {
            self.record_next(published).await;
        }
    }
}

impl Deliveries {
    fn deliver(&mut self, message: Message) {
        let sender = Arc::clone(&self.sender);
        let delivery = Delivery { account: message.account, id: message.id, began: Instant::now() };
        self.in_flight.insert(message.id);
        self.running.spawn(async move { (delivery, sender.send(&message).await) });
    }

    /// Waits for the next response, and records it.
    async fn record_next(&mut self, published: &mut Published) {
        let Some(ended) = self.running.join_next().await else { return };
        let (Delivery { account, id, began }, result) = ended.expect("sending does not panic");
        self.in_flight.remove(&id);
        let mut delays = self.delays.lock();
        let why = match result {
            Ok(()) => {
                delays.acknowledged(id);
                self.acknowledged_at = Some(Instant::now());
                published.acknowledged.push((account, id));
                return;
            }
            // Meanwhile, the endpoint has acknowledged another message.
            Err(Failure::Endpoint(why, None)) if self.acknowledged_at > Some(began) => {
                delays.attempt_failed(id);
                why
            }
            Err(Failure::Endpoint(why, demanded)) => {
                delays.endpoint_failed(id, demanded);
                why
            }
            Err(Failure::Message(why)) => {
                delays.message_rejected(id);
                why
            }
        };
        published.reject(id, why);
    }
}

impl Sender {
    async fn send(&self, message: &Message) -> Result<(), Failure> {
        let body = body(message);
        let headers = self.headers(message, &body);
        match self.client.post(&headers, &body, TIMEOUT).await {
            Ok(response) => self.result(&response),
            Err(error) => Err(Failure::Endpoint(error.to_string(), None)),
        }
    }

    fn headers(&self, message: &Message, body: &[u8]) -> HeaderMap {
        let timestamp = self.clock.now().as_milliseconds().div_euclid(1_000);
        let text = |text: String| HeaderValue::try_from(text).expect("the text is ASCII");
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("petstore/", env!("CARGO_PKG_VERSION"))));
        headers.insert("webhook-id", text(message.id.to_string()));
        headers.insert("webhook-timestamp", timestamp.into());
        headers.insert("webhook-signature", text(self.secrets.sign(message.id, timestamp, body)));
        headers
    }

    fn result(&self, response: &Response) -> Result<(), Failure> {
        let why = format!("status {}", response.status);
        match response.status {
            status if status.is_success() => Ok(()),
            status if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => Err(Failure::Endpoint(
                why,
                response.header("retry-after").and_then(|text| demanded_pause(text, self.clock.now())),
            )),
            _ => Err(Failure::Message(why)),
        }
    }
}

fn body(message: &Message) -> Bytes {
    let mut body = b"{\"type\":\"message.created\",\"timestamp\":\"".to_vec();
    message.created_at.write(&mut body);
    body.extend_from_slice(b"\",\"data\":");
    body.extend(message_json(message));
    body.push(b'}');
    body.into()
}

/// Parses `Retry-After`: seconds or a date. `None` if it is invalid.
fn demanded_pause(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let now = Duration::from_millis(u64::try_from(now.as_milliseconds()).ok()?);
    Some(date.saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{AccountId, MessageIds, MessageText};

    const NOW: Timestamp = Timestamp::from_milliseconds(1_795_167_000_000);

    #[test]
    fn body_is_an_event_with_the_message() {
        let text = MessageText::parse("\"ß🦊\u{2028}".into()).unwrap();
        let message = Message::new(&MessageIds::default(), AccountId(1), text, NOW);
        let event: serde_json::Value = serde_json::from_slice(&body(&message)).unwrap();
        let expected = serde_json::json!({
            "type": "message.created",
            "timestamp": "2026-11-20T09:30:00.000Z",
            "data": {
                "id": message.id.to_string(),
                "message": "\"ß🦊\u{2028}",
                "status": "queued",
                "createdAt": "2026-11-20T09:30:00.000Z",
            },
        });
        assert_eq!(event, expected);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        for (text, seconds) in [
            ("120", Some(120)),
            ("Fri, 20 Nov 2026 09:31:00 GMT", Some(60)),
            ("Fri, 20 Nov 2026 09:29:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(demanded_pause(text, NOW), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
