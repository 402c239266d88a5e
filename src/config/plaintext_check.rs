//! Refuses, or warns of, listeners and a relay through which secrets or messages would pass a network unencrypted.

use super::{Listener, ServiceSettings};
use crate::domain::Deployment;
use crate::relay::RelayUrl;

/// Checks the configured addresses before they are opened. Returns warnings.
///
/// With a trusted proxy, TLS is the proxy's task. The operations listener only warns: it takes API keys on staging only.
///
/// # Errors
///
/// A relay to another machine without TLS is an error, except on staging with `--relay-allow-plaintext`.
/// In production, unless `--insecure` is given, an unencrypted listener that other machines may reach is an error.
pub fn check(service: &ServiceSettings, deployment: Deployment) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    if service.relay.as_ref().is_some_and(RelayUrl::is_plaintext) {
        if deployment == Deployment::Production || !service.relay_allow_plaintext {
            return Err("--relay is an http:// URL of another machine, where messages can be read in transit: give \
                        https://HOST/PATH. Staging accepts it with --relay-allow-plaintext"
                .into());
        }
        warnings.push("messages are relayed unencrypted (--relay-allow-plaintext)".into());
    }
    if service.tls_cert.is_some() || !service.trusted_proxy.is_empty() {
        return Ok(warnings);
    }
    if let Some(listener) = [Listener::Store, Listener::Messages].into_iter().find(|it| is_exposed(service, *it)) {
        let address = service.address(listener);
        let what = format!(
            "the {} listener is bound to {address}, which other machines may reach, without TLS: API keys and \
             passwords can be read in transit. Give --tls-cert and --tls-key, or --trusted-proxy if a proxy in front \
             terminates TLS",
            listener.as_str()
        );
        if deployment == Deployment::Production && !service.insecure {
            return Err(format!("{what}; --insecure serves anyway"));
        }
        warnings.push(what);
    }
    if is_exposed(service, Listener::Ops) {
        let address = service.ops_listen;
        let keys = if deployment == Deployment::Staging { ", and API keys can be read in transit" } else { "" };
        warnings.push(format!(
            "the ops listener is bound to {address}, which other machines may reach: metrics require no credentials{keys}"
        ));
    }
    Ok(warnings)
}

fn is_exposed(service: &ServiceSettings, listener: Listener) -> bool {
    service.listeners.contains(&listener) && !service.address(listener).ip().to_canonical().is_loopback()
}
