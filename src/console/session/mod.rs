//! Finds the user of a page, and checks that a form was sent from our own page.

pub(super) mod current_user;
pub(super) mod origin;
pub(super) mod password_hasher;
pub(super) mod throttle;
