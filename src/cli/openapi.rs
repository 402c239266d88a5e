//! `petstore openapi`

use clap::Args;

use super::{Outcome, print};
use crate::clock::Clock;
use crate::config::{Addresses, Common, Service};
use crate::domain::Deployment;
use crate::http::openapi::document;

/// Print the OpenAPI document
///
/// Its server URLs are those of a service with the same settings.
#[derive(Args, Debug)]
pub struct Openapi {
    #[command(flatten)]
    service: Service,
    #[command(flatten)]
    common: Common,
}

impl Openapi {
    pub fn run(self) -> Outcome {
        let service = &self.service;
        let addresses = Addresses::new(service, service.listen, service.messages_listen);
        print(&document(&addresses, self.common.deployment.unwrap_or(Deployment::Production), Clock::System.now()))
    }
}
