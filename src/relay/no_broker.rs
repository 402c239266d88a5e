//! Stands in for the broker in a build without the feature `relay`. Such a build rejects `--relay`.

use super::{Published, RelayUrl};
use crate::domain::{Deployment, Message};

#[derive(Debug)]
pub enum Broker {}

impl Broker {
    pub async fn connect(_: &RelayUrl, _: Deployment) -> Result<Self, String> {
        Err("this build has no relay".into())
    }

    pub fn is_connected(&self) -> bool {
        match *self {}
    }

    pub async fn publish(&self, _: &[Message]) -> Published {
        match *self {}
    }
}
