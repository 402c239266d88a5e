//! The listeners.

use clap::ValueEnum;

/// A listener. Each has addresses and operations of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Listener {
    Store,
    Messages,
    Ops,
}

impl std::fmt::Display for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Store => "store",
            Self::Messages => "messages",
            Self::Ops => "ops",
        })
    }
}
