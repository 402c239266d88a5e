//! Log, request log, metrics and traces.

mod log;
pub mod metrics;
pub mod trace_context;
pub mod traces;

pub use log::{
    Flush, IS_JSON, LogFormat, LogLevel, Sampler, change_level, dropped_lines, label, never_block, start, start_plain,
    write,
};
