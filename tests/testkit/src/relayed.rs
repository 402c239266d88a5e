//! A shop whose messages the service relays to an endpoint.

use std::process::Command;

use crate::database::Database;
use crate::endpoint::Endpoint;
use crate::folder::Folder;
use crate::server::Server;
use crate::shop::Shop;

/// The secret that signs the messages.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A shop, and a folder with the file `secrets`.
pub struct RelayedShop {
    pub shop: Shop,
    pub folder: Folder,
}

impl RelayedShop {
    pub fn on_every_database() -> [Self; 2] {
        Shop::on_every_database().map(Self::of)
    }

    pub fn on_sqlite() -> Self {
        Self::of(Shop::on_sqlite())
    }

    pub fn of(shop: Shop) -> Self {
        let folder = Folder::new();
        folder.write("secrets", SECRET);
        Self { shop, folder }
    }

    /// The flags that relay to `url`.
    pub fn flags(&self, url: &str) -> String {
        format!("--relay {url} --relay-secret-file {}", self.folder.path("secrets").display())
    }

    pub fn command(&self, url: &str) -> Command {
        self.shop.database.petstore(&format!("{} {}", Database::SERVE, self.flags(url)))
    }

    pub fn serve(&self, endpoint: &Endpoint) -> Server {
        Server::start(self.command(&endpoint.url()))
    }

    /// The number of messages that wait, at most 1000.
    pub fn waiting(&self) -> usize {
        self.shop.messages("--state waiting --limit 1000").len()
    }
}
