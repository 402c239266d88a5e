//! The broker or endpoint of the settings.

use std::path::Path;

use super::RelayUrl;
use super::endpoint::{Endpoint, Secrets};
use super::nats::NatsUrl;
use crate::clock::Clock;

pub enum Target {
    Nats(NatsUrl),
    Endpoint(Endpoint),
}

impl Target {
    /// Reads the secrets of an endpoint. `None` if no URL is set. Fails if the file cannot be read or has no valid secret.
    /// Errors are for the operator.
    pub fn load(url: Option<&RelayUrl>, secrets: Option<&Path>) -> Result<Option<Self>, String> {
        match (url, secrets) {
            (None, None) => Ok(None),
            (Some(RelayUrl::Nats(url)), None) => Ok(Some(Self::Nats(url.clone()))),
            (Some(RelayUrl::Endpoint(url)), Some(file)) => {
                Ok(Some(Self::Endpoint(Endpoint::new(url.clone(), Secrets::load(file)?, Clock::System))))
            }
            (Some(RelayUrl::Endpoint(_)), None) => {
                Err("an endpoint needs a secret to sign messages: give --relay-secret-file too".into())
            }
            (None | Some(RelayUrl::Nats(_)), Some(_)) => {
                Err("--relay-secret-file is for an endpoint: give --relay https://HOST/PATH, or remove it".into())
            }
        }
    }
}
