//! A web server as the receiver, by Standard Webhooks 1.0 (github.com/standard-webhooks/standard-webhooks).

use std::fmt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use axum::http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::OnceCell;

use super::RelayUrl;
use super::deliveries::{Failure, Receiver};
use super::secrets::Secrets;
use crate::domain::{Message, Timestamp};
use crate::net::http_client::{Client, Response};
use crate::net::tls;
use crate::runtime::clock::Clock;

/// Maximum time until the head of the response, including the connection.
const TIMEOUT: Duration = Duration::from_secs(10);

pub struct Endpoint {
    url: RelayUrl,
    pub secrets: Secrets,
    clock: Clock,
    /// Created by the first delivery, which loads the authorities of the system.
    client: OnceCell<Client>,
}

impl Endpoint {
    /// Reads the secrets. `None` if no URL is set. Fails if the file cannot be read or has no valid secret. Errors are for the
    /// operator.
    pub fn load(url: Option<&RelayUrl>, secrets: Option<&Path>) -> Result<Option<Self>, String> {
        match (url, secrets) {
            (None, None) => Ok(None),
            (Some(url), Some(file)) => {
                let (url, secrets) = (url.clone(), Secrets::load(file)?);
                Ok(Some(Self { url, secrets, clock: Clock::System, client: OnceCell::new() }))
            }
            (Some(_), None) => Err("--relay needs a secret to sign messages: give --relay-secret-file too".into()),
            (None, Some(_)) => {
                Err("--relay-secret-file is for a relay: give --relay https://HOST/PATH, or remove it".into())
            }
        }
    }

    async fn client(&self) -> Result<&Client, String> {
        let create = async || {
            let tls = if self.url.is_https() { Some(tls::system_connector().await?) } else { None };
            Ok(Client::new(self.url.uri(), tls))
        };
        self.client.get_or_try_init(create).await
    }

    fn headers(&self, message: &Message, body: &[u8]) -> HeaderMap {
        let timestamp = self.clock.now().as_milliseconds().div_euclid(1_000);
        let text = |text: String| HeaderValue::try_from(text).expect("the text is ASCII");
        let mut headers = HeaderMap::new();
        // Some firewalls refuse requests without it.
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("petstore/", env!("CARGO_PKG_VERSION"))));
        headers.insert("petstore-account", message.account.0.into());
        headers.insert("webhook-id", text(message.id.to_string()));
        headers.insert("webhook-timestamp", timestamp.into());
        headers.insert("webhook-signature", text(self.secrets.sign(message.id, timestamp, body)));
        headers
    }

    fn result(&self, response: &Response) -> Result<(), Failure> {
        let why = format!("status {}", response.status);
        let pause = || response.header("retry-after").and_then(|text| demanded_pause(text, self.clock.now()));
        match response.status {
            status if status.is_success() => Ok(()),
            status if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                Err(Failure::Endpoint(why, pause()))
            }
            _ => Err(Failure::Message(why)),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.url)
    }
}

impl Receiver for Endpoint {
    async fn deliver(&self, message: &Message) -> Result<(), Failure> {
        let body = body(message);
        let headers = self.headers(message, &body);
        let response =
            async { self.client().await?.send("POST", &headers, &body, TIMEOUT).await.map_err(|why| why.to_string()) };
        self.result(&response.await.map_err(|why| Failure::Endpoint(why, None))?)
    }
}

fn body(message: &Message) -> Vec<u8> {
    let mut body = b"{\"type\":\"message.created\",\"timestamp\":\"".to_vec();
    message.created_at.write(&mut body);
    body.extend_from_slice(b"\",\"data\":");
    body.extend(message.to_json());
    body.push(b'}');
    body
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
