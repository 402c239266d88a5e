//! NATS JetStream as the broker.

mod connection;
mod url;

use std::io;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::net::lookup_host;
use tokio::time::{Instant, timeout};

use self::connection::Connection;
use super::{Broker, Published, Stream};
use crate::domain::{Deployment, Message};
use crate::representation::message_json;
pub use url::NatsUrl;

/// Maximum time to connect to one server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Size of the texts that are sent before their acknowledgements are awaited.
const AT_ONCE: usize = 256 * 1024;

/// Maximum time for the response to a request, and for the acknowledgement of these messages.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that was silent for this long is checked before it is used.
const CHECK_AFTER: Duration = Duration::from_secs(1);

/// Deduplication window of a stream that petstore creates.
const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);

/// Error codes of JetStream.
const STREAM_NOT_FOUND: u32 = 10_059;
const OTHER_STREAM: u32 = 10_060;

pub struct JetStream {
    connection: Connection,
    name: &'static str,
    subject: &'static str,
    /// When the server last responded.
    responded_at: Instant,
    /// True once a response was missing.
    is_broken: bool,
}

/// A response of JetStream.
#[derive(Deserialize)]
struct Answer {
    error: Option<ApiError>,
    /// The stream that has stored the message.
    stream: Option<String>,
    config: Option<Config>,
}

#[derive(Deserialize)]
struct ApiError {
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct Config {
    /// Absent from a mirror.
    #[serde(default)]
    subjects: Vec<String>,
}

impl Broker for NatsUrl {
    type Stream = JetStream;

    /// Connects to one of the servers, and creates the stream if it does not exist. An existing stream is not changed.
    async fn connect(&self, deployment: Deployment) -> Result<JetStream, String> {
        let connection = self.open().await?;
        let (name, subject) = stream(deployment);
        let mut stream = JetStream { connection, name, subject, responded_at: Instant::now(), is_broken: false };
        let opened = timeout(REQUEST_TIMEOUT, stream.open()).await.unwrap_or_else(|_| Err(silent()));
        opened.map_err(|why| format!("cannot open stream {name} of {self}: {why}"))?;
        tracing::debug!(server = %self, stream = name, subject, "stream opened");
        Ok(stream)
    }
}

impl NatsUrl {
    /// Connects to the first server that responds, starting at a random one.
    async fn open(&self) -> Result<Connection, String> {
        let servers = self.hosts();
        let first = getrandom::u32().unwrap_or(0) as usize % servers.len();
        let mut why = String::new();
        for server in servers.iter().cycle().skip(first).take(servers.len()) {
            let addresses = match timeout(CONNECT_TIMEOUT, lookup_host(server)).await {
                Ok(Ok(addresses)) => addresses.collect(),
                Ok(Err(error)) => {
                    why = format!("{server}: {error}");
                    Vec::new()
                }
                Err(_) => {
                    why = format!("{server} cannot be resolved within {CONNECT_TIMEOUT:?}");
                    Vec::new()
                }
            };
            for address in addresses {
                let opening = Connection::open(address, server, self.requires_tls(), self.credentials());
                match timeout(CONNECT_TIMEOUT, opening).await {
                    Ok(Ok(connection)) => return Ok(connection),
                    Ok(Err(error)) => why = format!("{server}: {error}"),
                    Err(_) => why = format!("{server} does not respond within {CONNECT_TIMEOUT:?}"),
                }
            }
            tracing::debug!(why, "cannot connect to a server");
        }
        Err(format!("cannot connect to {self}: {why}"))
    }
}

impl JetStream {
    async fn open(&mut self) -> Result<(), String> {
        let Self { name, subject, .. } = *self;
        let mut found = self.request(&format!("STREAM.INFO.{name}"), "").await?;
        if found.error.as_ref().is_some_and(|error| error.err_code == STREAM_NOT_FOUND) {
            let window = u64::try_from(DUPLICATE_WINDOW.as_nanos()).unwrap_or(u64::MAX);
            let config = json!({ "name": name, "subjects": [subject], "storage": "file", "duplicate_window": window });
            found = self.request(&format!("STREAM.CREATE.{name}"), &config.to_string()).await?;
        }
        if let Some(error) = found.error {
            return Err(error.description);
        }
        let subjects = found.config.map(|config| config.subjects).unwrap_or_default();
        // Otherwise another stream, or none, would store the messages.
        if !subjects.iter().any(|stored| includes(stored, subject)) {
            return Err(format!("it does not store the messages: add {subject} to its subjects"));
        }
        Ok(())
    }

    async fn request(&mut self, operation: &str, content: &str) -> Result<Answer, String> {
        let request = async {
            let number = self.connection.write(&format!("$JS.API.{operation}"), "", content.as_bytes()).await?;
            self.connection.flush().await?;
            loop {
                let response = self.connection.response().await?;
                if response.number == number {
                    return Ok::<_, io::Error>(response.content);
                }
            }
        };
        let content = request.await.map_err(|error| error.to_string())?.ok_or("JetStream is not enabled")?;
        serde_json::from_slice(&content).map_err(|error| error.to_string())
    }

    /// Writes the messages that the server takes. Returns the numbers of the requests, and the positions of the messages.
    async fn write(&mut self, messages: &[Message], published: &mut Published) -> io::Result<Vec<(u64, usize)>> {
        let mut sent = Vec::with_capacity(messages.len());
        for (position, message) in messages.iter().enumerate() {
            let headers = format!(
                "Nats-Msg-Id: {}\r\nNats-Expected-Stream: {}\r\nPetstore-Account: {}\r\n",
                message.id, self.name, message.account.0,
            );
            match self.connection.write(self.subject, &headers, &message_json(message)).await? {
                Some(number) => sent.push((number, position)),
                None => published.reject(message.id, "exceeds the max_payload of the server"),
            }
        }
        self.connection.flush().await?;
        Ok(sent)
    }

    /// Publishes messages, and counts in `published` those that were acknowledged.
    async fn exchange(&mut self, messages: &[Message], published: &mut Published) -> io::Result<()> {
        let mut sent = self.write(messages, published).await?;
        while !sent.is_empty() {
            let response = self.connection.response().await?;
            let Some(found) = sent.iter().position(|(number, _)| Some(*number) == response.number) else { continue };
            let message = &messages[sent.swap_remove(found).1];
            let answer = response.content.map(|content| serde_json::from_slice::<Answer>(&content));
            match answer {
                Some(Ok(Answer { error: None, stream: Some(stream), .. })) if stream == self.name => {
                    published.acknowledged.push((message.account, message.id));
                }
                Some(Ok(Answer { error: Some(error), .. })) if error.err_code != OTHER_STREAM => {
                    published.reject(message.id, error.description);
                }
                // Connecting again says what to do.
                Some(_) => {
                    published.has_unanswered = true;
                    published.reject(message.id, "another stream has the subject");
                }
                None => {
                    published.has_unanswered = true;
                    published.reject(message.id, "no stream has the subject");
                }
            }
        }
        Ok(())
    }
}

impl Stream for JetStream {
    const BATCH: u32 = 256;

    async fn is_connected(&mut self) -> bool {
        if !self.is_broken && self.responded_at.elapsed() >= CHECK_AFTER {
            self.is_broken = !matches!(timeout(REQUEST_TIMEOUT, self.connection.ping()).await, Ok(Ok(())));
            self.responded_at = Instant::now();
        }
        !self.is_broken
    }

    async fn publish(&mut self, messages: &[Message], published: &mut Published) {
        // In parts, so that a slow connection gets some through within the limit of time.
        let mut rest = messages;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |message: &&Message| {
                bytes += message.text.as_str().len();
                bytes <= AT_ONCE
            };
            let (part, after) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            rest = after;
            let exchanged = timeout(REQUEST_TIMEOUT, self.exchange(part, published)).await;
            let why = match exchanged {
                Ok(Ok(())) => {
                    self.responded_at = Instant::now();
                    continue;
                }
                Ok(Err(error)) => format!("connection lost: {error}"),
                Err(_) => silent(),
            };
            self.is_broken = true;
            published.rejection = Some(why);
            published.has_unanswered = true;
            return;
        }
    }
}

fn silent() -> String {
    format!("no response within {REQUEST_TIMEOUT:?}")
}

/// Returns the name of the stream and the subject. They differ so that staging messages never mix with production.
const fn stream(deployment: Deployment) -> (&'static str, &'static str) {
    match deployment {
        Deployment::Production => ("PETSTORE_MESSAGES", "petstore.messages"),
        Deployment::Staging => ("PETSTORE_STAGING_MESSAGES", "petstore.staging.messages"),
    }
}

/// Returns whether a stream with the subject `stored`, which may have wildcards, stores `subject`.
fn includes(stored: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for pattern in stored.split('.') {
        match (pattern, tokens.next()) {
            (">", token) => return token.is_some(),
            (_, None) => return false,
            (_, Some(token)) if pattern != "*" && pattern != token => return false,
            _ => {}
        }
    }
    tokens.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_stores_subjects_that_its_own_include() {
        let (_, subject) = stream(Deployment::Staging);
        for stored in [subject, "petstore.>", "petstore.staging.>", "petstore.*.messages", "*.*.*", "*.>", ">"] {
            assert!(includes(stored, subject), "{stored}");
        }
        for stored in
            ["petstore.messages", "petstore.staging", "petstore.*", "*", "*.*.*.*", "petstore.staging.messages.>"]
        {
            assert!(!includes(stored, subject), "{stored}");
        }
    }
}
