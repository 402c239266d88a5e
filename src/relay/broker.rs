//! The interface of the relay to a broker or endpoint: NATS, a web server, or the simulated broker of the tests.

use std::fmt::Display;

use crate::domain::{AccountId, Deployment, Message, MessageId};

/// A message broker with a stream for each deployment, or an endpoint.
pub trait Broker: Display + Send + 'static {
    type Stream: Stream;

    /// Connects to the stream of the deployment. The error is the reason, for the log.
    fn connect(&self, deployment: Deployment) -> impl Future<Output = Result<Self::Stream, String>> + Send;
}

/// A connection to a stream.
pub trait Stream: Send + Sync {
    /// Maximum number of messages to publish at once, of at most 40 kB each.
    const BATCH: u32;

    fn is_connected(&mut self) -> impl Future<Output = bool> + Send;

    /// Returns whether nothing may be published now, after a failure of the endpoint.
    fn is_paused(&self) -> bool {
        false
    }

    /// True if [`Self::publish`] may leave messages in flight, whose acknowledgements a later call or [`Self::finish`] collects.
    const LEAVES_IN_FLIGHT: bool = false;

    /// Publishes all messages that are not in flight yet, and waits for the acknowledgements. If the future is dropped,
    /// `published` has those that arrived.
    fn publish(&mut self, messages: &[Message], published: &mut Published) -> impl Future<Output = ()> + Send;

    /// Ends the delays of messages: ids, or `all`, separated by spaces.
    fn retry(&mut self, _ids: &str) {}

    /// Waits for the acknowledgements of all messages in flight.
    fn finish(&mut self, _published: &mut Published) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Result of publishing messages.
#[derive(Debug, Default)]
pub struct Published {
    pub acknowledged: Vec<(AccountId, MessageId)>,
    /// Why the last of the other messages was not acknowledged. `None` if none was rejected.
    pub rejection: Option<String>,
    /// Each reason why messages were rejected, with the first of these.
    pub rejections: Vec<(String, MessageId)>,
    /// Set if a message got no response from the stream, because of a timeout, a lost connection or a missing stream.
    pub has_unanswered: bool,
    /// Set if messages were not published, because they were rejected recently.
    pub has_delayed: bool,
    /// Set if messages are still in flight.
    pub has_in_flight: bool,
    /// Position at which to continue, to skip messages. `None` after the last message.
    pub next: Option<(AccountId, MessageId)>,
    /// Set at the end of a sweep that left messages for the next one.
    pub has_more: bool,
}

impl Published {
    pub fn reject(&mut self, id: MessageId, why: impl Display) {
        let why = why.to_string();
        if !self.rejections.iter().any(|(known, _)| *known == why) {
            self.rejections.push((why.clone(), id));
        }
        self.rejection = Some(why);
    }
}
