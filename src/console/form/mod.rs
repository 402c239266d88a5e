//! Submissions of forms, paths and the parameters of pages.

pub(super) mod pagination;
mod path;
mod request_key;
pub(super) mod simulation;
pub(super) mod submission;

pub(super) use pagination::{Links, Place, newest_first, parse_integer};
pub(super) use path::Path;
pub(super) use request_key::RequestKey;
pub(super) use submission::Form;
