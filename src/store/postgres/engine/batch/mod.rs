//! Waiting writes of a kind are one statement, waiting reads another.

pub(in crate::store) mod reads;
pub(in crate::store) mod write;
pub(in crate::store) mod writer;
