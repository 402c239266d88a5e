//! Composes the program: state, listeners and background jobs.

pub mod backup_schedule;
