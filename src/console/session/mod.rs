//! Finds the user of a page, and checks that a form was sent from our own page.

mod current_user;
pub(super) mod origin;
mod password_hasher;
mod throttle;

pub(super) use current_user::{CurrentUser, SignedIn, cookie_name, page_to_return_to};
pub(super) use password_hasher::{PasswordHasher, QueuePlace};
pub(super) use throttle::Throttle;
