//! NATS JetStream as the broker.

use std::error::Error as _;
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::connection::State;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{Context, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, StorageType};
use tokio::time::{Instant, timeout_at};

use super::url::Credentials;
use super::{Broker, Published, RelayUrl, Stream};
use crate::domain::{Deployment, Message};
use crate::representation::message_json;
use crate::tls::Time;

/// Maximum time to connect to one server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time for the response to a request, and for the acknowledgement of all messages of a batch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of pings to a silent server. The connection is closed after three unanswered pings.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Deduplication window of a stream that petstore creates.
const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);

/// Header with the id of the message's account.
const ACCOUNT: &str = "Petstore-Account";

#[derive(Debug)]
pub struct JetStream {
    context: Context,
    name: &'static str,
    subject: &'static str,
}

impl Broker for RelayUrl {
    type Stream = JetStream;

    /// Connects to one of the servers, and creates the stream if it does not exist. An existing stream is not changed.
    async fn connect(&self, deployment: Deployment) -> Result<JetStream, String> {
        // The TLS code of async-nats panics before 1970.
        if Time::is_before_1970() {
            return Err("the system clock is before 1970".into());
        }
        let servers = self.servers();
        let options = ConnectOptions::new()
            .name("petstore")
            .connection_timeout(CONNECT_TIMEOUT)
            .request_timeout(Some(REQUEST_TIMEOUT))
            .ping_interval(PING_INTERVAL)
            // The relay reconnects with its own backoff.
            .max_reconnects(servers.len());
        let options = match self.credentials() {
            None => options,
            Some(Credentials::Token(token)) => options.token(token.expose().to_owned()),
            Some(Credentials::Password { user, password }) => {
                options.user_and_password(user.clone(), password.expose().to_owned())
            }
        };
        let connected = options.connect(servers).await;
        let client = connected.map_err(|error| format!("cannot connect to {self}: {error}"))?;
        let context = async_nats::jetstream::new(client);
        let (name, subject) = stream(deployment);
        let config = Config {
            name: name.into(),
            subjects: vec![subject.into()],
            storage: StorageType::File,
            duplicate_window: DUPLICATE_WINDOW,
            ..Config::default()
        };
        let stream = context.get_or_create_stream(config).await;
        let stream = stream.map_err(|error| format!("cannot open stream {name} of {self}: {error}"))?;
        // Otherwise another stream, or none, would store the messages.
        if !stream.cached_info().config.subjects.iter().any(|stored| includes(stored, subject)) {
            return Err(format!("stream {name} of {self} does not store the messages: add {subject} to its subjects"));
        }
        tracing::debug!(server = %self, stream = name, subject, "stream opened");
        Ok(JetStream { context, name, subject })
    }
}

impl Stream for JetStream {
    fn is_connected(&self) -> bool {
        self.context.client().connection_state() == State::Connected
    }

    async fn publish(&self, messages: &[Message]) -> Published {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let acknowledged = Vec::with_capacity(messages.len());
        let mut published = Published { acknowledged, rejection: None, is_answered: true };
        let mut sent = Vec::with_capacity(messages.len());
        for message in messages {
            let publish = PublishMessage::build()
                .message_id(message.id.to_string())
                .expected_stream(self.name)
                .header(ACCOUNT, message.account.0.to_string().as_str())
                .payload(message_json(message).into());
            match self.context.send_publish(self.subject, publish).await {
                Ok(acknowledgement) => sent.push((message, acknowledgement)),
                Err(error) => {
                    published.is_answered &= error.kind() == PublishErrorKind::MaxPayloadExceeded;
                    published.rejection = Some(format!("message {}: {error}", message.id));
                }
            }
        }
        for (message, acknowledgement) in sent {
            match timeout_at(deadline, acknowledgement.into_future()).await {
                Ok(Ok(stored)) if stored.stream == self.name => {
                    published.acknowledged.push((message.account, message.id));
                }
                Ok(Ok(stored)) => {
                    published.is_answered = false;
                    published.rejection = Some(format!("message {}: {} acknowledged it", message.id, stored.stream));
                }
                Ok(Err(error)) => {
                    // The stream's own errors have no other kind.
                    published.is_answered &= error.kind() == PublishErrorKind::Other && !is_of_another_stream(&error);
                    published.rejection = Some(format!("message {}: {error}", message.id));
                }
                Err(_) => {
                    published.rejection = Some(format!("no acknowledgement within {REQUEST_TIMEOUT:?}"));
                    published.is_answered = false;
                }
            }
        }
        published
    }
}

/// Returns whether another stream has the subject: it rejected the message, because it is not the expected one.
fn is_of_another_stream(error: &PublishError) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<async_nats::jetstream::Error>());
    cause.is_some_and(|cause| cause.error_code() == ErrorCode::STREAM_NOT_MATCH)
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

/// Returns the name of the stream and the subject. They differ so that staging messages never mix with production.
const fn stream(deployment: Deployment) -> (&'static str, &'static str) {
    match deployment {
        Deployment::Production => ("PETSTORE_MESSAGES", "petstore.messages"),
        Deployment::Staging => ("PETSTORE_STAGING_MESSAGES", "petstore.staging.messages"),
    }
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
