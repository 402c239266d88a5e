//! The interface of the relay to a broker: NATS, or the simulated one of the tests.

use std::fmt::Display;

use crate::domain::{AccountId, Deployment, Message, MessageId};

/// A message broker with a stream for each deployment.
pub trait Broker: Display + Send + 'static {
    type Stream: Stream;

    /// Connects to the stream of the deployment. The error is the reason, for the log.
    fn connect(&self, deployment: Deployment) -> impl Future<Output = Result<Self::Stream, String>> + Send;
}

/// A connection to a stream.
pub trait Stream: Send + Sync {
    fn is_connected(&mut self) -> impl Future<Output = bool> + Send;

    /// Publishes all messages and waits for their acknowledgements.
    fn publish(&mut self, messages: &[Message]) -> impl Future<Output = Published> + Send;
}

/// Result of publishing messages.
pub struct Published {
    pub acknowledged: Vec<(AccountId, MessageId)>,
    /// Why the last of the other messages was not acknowledged. `None` if all were.
    pub rejection: Option<String>,
    /// False if a message got no response from the stream, because of a timeout, a lost connection or a missing stream.
    pub is_answered: bool,
}
