//! `petstore openapi`

use clap::Args;

use super::config::stored_deployment;
use crate::api::documents::openapi::{Version, document};
use crate::cli::{Outcome, print};
use crate::config::{Common, ServiceSettings};
use crate::domain::Deployment;
use crate::runtime::clock::Clock;

/// Print the OpenAPI document
///
/// It is that of a service with the same settings and database.
#[derive(Args, Debug)]
pub struct Openapi {
    /// Version of the OpenAPI Specification
    #[arg(long, value_name = "VERSION", default_value = "3.1")]
    openapi_version: Version,
    #[command(flatten)]
    service: ServiceSettings,
}

impl Openapi {
    pub fn run(self, common: &Common) -> Outcome {
        let service = &self.service;
        let addresses = service.addresses(service.listen, service.messages_listen);
        let deployment = match common.deployment {
            Some(given) => given,
            None => stored_deployment(common)?.unwrap_or(Deployment::Production),
        };
        print(&document(&addresses, deployment, Clock::System.now(), self.openapi_version))
    }
}
