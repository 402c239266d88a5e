//! What is said, or refused, where keys and passwords would pass a network in the clear.

use std::net::SocketAddr;

use tracing::Level;

use super::{Failure, Outcome, tell};
use crate::config::{Door, Service};
use crate::domain::Deployment;

/// Looks at the addresses of the doors before they are opened: production refuses what everybody is warned of.
///
/// With a trusted proxy, TLS is the proxy's affair. The operations door takes no secrets, so it is only warned of.
pub fn check(service: &Service, deployment: Deployment) -> Outcome {
    if service.tls_cert.is_some() || !service.trusted_proxy.is_empty() {
        return Ok(());
    }
    let doors = [(Door::Store, service.listen), (Door::Messages, service.messages_listen)];
    if let Some((door, address)) = doors.into_iter().find(|door| is_exposed(service, door)) {
        let what = format!(
            "the {door} door listens on {address}, which other machines may reach, without TLS: API keys and passwords \
             can be read on their way. Give --tls-cert and --tls-key, or --trusted-proxy where a proxy in front has TLS"
        );
        if deployment == Deployment::Production && !service.insecure {
            return Err(Failure(format!("{what}; --insecure serves all the same")));
        }
        tell(Level::WARN, &what);
    }
    let operations = (Door::Ops, service.ops_listen);
    if is_exposed(service, &operations) {
        let (door, address) = operations;
        tell(
            Level::WARN,
            &format!("the {door} door listens on {address}, which other machines may reach: anybody can ask it"),
        );
    }
    Ok(())
}

fn is_exposed(service: &Service, (door, address): &(Door, SocketAddr)) -> bool {
    service.doors.contains(door) && !address.ip().to_canonical().is_loopback()
}
