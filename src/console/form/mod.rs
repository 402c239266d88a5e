//! Submissions of forms, paths and the parameters of pages.

pub(super) mod pagination;
pub(super) mod path;
pub(super) mod request_key;
pub(super) mod simulation;
pub(super) mod submission;
