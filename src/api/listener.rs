//! The listeners.

use crate::domain::names;

names! {
    /// A listener. Each has addresses and operations of its own.
    pub enum Listener {
        Store = "store",
        Messages = "messages",
        Ops = "ops",
    }
}
