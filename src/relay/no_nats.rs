//! Stands in for NATS in a build without the feature `relay`. Such a build rejects `--relay`.

use super::{Broker, Published, RelayUrl, Stream};
use crate::domain::{Deployment, Message};

#[derive(Debug)]
pub enum JetStream {}

impl Broker for RelayUrl {
    type Stream = JetStream;

    async fn connect(&self, _: Deployment) -> Result<JetStream, String> {
        Err("this build has no relay".into())
    }
}

impl Stream for JetStream {
    fn is_connected(&self) -> bool {
        match *self {}
    }

    async fn publish(&self, _: &[Message]) -> Published {
        match *self {}
    }
}
