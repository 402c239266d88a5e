//! The pages, with one module each.

pub(super) mod account;
pub(super) mod audit;
pub(super) mod docs;
pub(super) mod keys;
pub(super) mod link;
pub(super) mod messages;
pub(super) mod orders;
pub(super) mod overview;
pub(super) mod pets;
pub(super) mod requests;
pub(super) mod reset;
pub(super) mod sign_in;
pub(super) mod sign_up;
