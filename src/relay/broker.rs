//! A connection to the broker, and the stream that messages go to.

use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::connection::State;
use async_nats::jetstream::context::Context;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, StorageType};
use tokio::time::{Instant, timeout_at};

use super::url::RelayUrl;
use crate::domain::{AccountId, Deployment, Message, MessageId};
use crate::tls::Time;

/// For one server to take the connection.
const CONNECT: Duration = Duration::from_secs(2);

/// For the server to answer a request, and to acknowledge all messages of a batch.
const ANSWER: Duration = Duration::from_secs(5);

/// A server that is silent is asked this often; after three times without an answer it is gone.
const PING: Duration = Duration::from_secs(5);

/// For so long the stream knows a message by its id and keeps it once: where it is made here.
const DUPLICATES: Duration = Duration::from_mins(2);

/// Says whose the message is: the account's number.
const ACCOUNT: &str = "Petstore-Account";

#[derive(Debug)]
pub struct Broker {
    context: Context,
    subject: &'static str,
}

/// What became of some messages.
pub struct Published {
    pub acknowledged: Vec<(AccountId, MessageId)>,
    /// Why the others were not acknowledged, where there are any: the last reason.
    pub refused: Option<String>,
}

impl Broker {
    /// Connects to one of the servers, and makes the stream where there is none; one that is there stays as it is.
    pub async fn connect(url: &RelayUrl, deployment: Deployment) -> Result<Self, String> {
        // The TLS of async-nats would panic.
        if Time::is_before_1970() {
            return Err("the system clock is before 1970".into());
        }
        let options = url.authorize(
            ConnectOptions::new()
                .name("petstore")
                .connection_timeout(CONNECT)
                .request_timeout(Some(ANSWER))
                .ping_interval(PING)
                // A connection that is lost is not mended there but made anew by who uses it, at its own pace.
                .max_reconnects(url.servers().len()),
        );
        let connected = options.connect(url.servers()).await;
        let client = connected.map_err(|error| format!("no connection to {url}: {error}"))?;
        let context = async_nats::jetstream::new(client);
        let (name, subject) = stream(deployment);
        let config = Config {
            name: name.into(),
            subjects: vec![subject.into()],
            storage: StorageType::File,
            duplicate_window: DUPLICATES,
            ..Config::default()
        };
        let stream = context.get_or_create_stream(config).await;
        stream.map_err(|error| format!("the stream {name} of {url}: {error}"))?;
        tracing::info!(server = %url, stream = name, subject, "relaying messages");
        Ok(Self { context, subject })
    }

    pub fn is_connected(&self) -> bool {
        self.context.client().connection_state() == State::Connected
    }

    /// Sends all of the messages and waits for what the broker says of each.
    pub async fn publish(&self, messages: &[Message]) -> Published {
        let deadline = Instant::now() + ANSWER;
        let mut published = Published { acknowledged: Vec::with_capacity(messages.len()), refused: None };
        let mut sent = Vec::with_capacity(messages.len());
        for message in messages {
            let publish = PublishMessage::build()
                .message_id(message.id.to_string())
                .header(ACCOUNT, message.account.0.to_string().as_str())
                .payload(message.to_json().into());
            match self.context.send_publish(self.subject, publish).await {
                Ok(acknowledgement) => sent.push((message, acknowledgement)),
                Err(error) => published.refused = Some(format!("message {}: {error}", message.id)),
            }
        }
        for (message, acknowledgement) in sent {
            match timeout_at(deadline, acknowledgement.into_future()).await {
                Ok(Ok(_)) => published.acknowledged.push((message.account, message.id)),
                Ok(Err(error)) => published.refused = Some(format!("message {}: {error}", message.id)),
                Err(_) => published.refused = Some(format!("no acknowledgement within {ANSWER:?}")),
            }
        }
        published
    }
}

/// The stream's name and the subject of messages: rehearsals do not end up among what customers sent.
const fn stream(deployment: Deployment) -> (&'static str, &'static str) {
    match deployment {
        Deployment::Production => ("PETSTORE_MESSAGES", "petstore.messages"),
        Deployment::Staging => ("PETSTORE_STAGING_MESSAGES", "petstore.staging.messages"),
    }
}
