//! URL of the broker or endpoint.

use super::endpoint::EndpointUrl;
use super::nats::NatsUrl;
use crate::domain::Invalid;

/// The value of `--relay`. Displayed without its secrets.
#[derive(Clone)]
pub enum RelayUrl {
    Nats(NatsUrl),
    Endpoint(EndpointUrl),
}

impl RelayUrl {
    /// Errors quote no part of `text`, because any part may be a piece of the password.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let endpoint = || EndpointUrl::parse(text).map(Self::Endpoint);
        NatsUrl::parse(text).map(Self::Nats).or_else(endpoint).ok_or_else(|| {
            Invalid("is neither nats://USER:PASSWORD@HOST:PORT (separate several HOST:PORT by commas; use tls:// for TLS; percent-encode special characters, as in %40) nor https://HOST/PATH (without a user; http:// to this machine, as in http://127.0.0.1:8000/)".into())
        })
    }
}

impl RelayUrl {
    /// Returns whether messages to a web server would pass a network unencrypted.
    pub fn is_plaintext(&self) -> bool {
        matches!(self, Self::Endpoint(url) if url.is_plaintext())
    }
}

impl std::fmt::Display for RelayUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nats(url) => write!(f, "{url}"),
            Self::Endpoint(url) => write!(f, "{url}"),
        }
    }
}

impl std::fmt::Debug for RelayUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_do_not_quote_the_url() {
        for invalid in [
            "", "s3cret", "http://ada:s3cret@n1", "http://ada:s3cret@127.0.0.1/", "https://ada:s3cret@n1/hook",
            "https://s3cret@n1/hook", "https://n1/hook#s3cret", "nats://", "nats://ada:s3cret@",
            "nats://ada:s3cret@n1,", "nats://ada:s3cret@n1:port", "nats://ada:s3cret@n1:4222:4223",
            "nats://ada:s3cret@[n1]", "nats://ada:s3cret@n'1", "nats://ada:s3cret@n1,bob:s3cret@n2",
            "nats://n1,nats://ada:s3cret@n2", "nats://n1:4222,ada:s3cret@n2:4222", "nats://ada:s3cret@n1/subject",
            "nats://ada:s3cret@n1?a=b",
        ] {
            let why = RelayUrl::parse(invalid).expect_err(invalid).to_string();
            assert!(!why.contains("s3cret"), "{why}");
        }
    }
}
