//! The parts of pages that show API calls: the call itself, samples in several languages, plots and times.

mod api_call;
pub(super) mod curl;
mod plot;
pub(super) mod sample_request;
pub(super) mod times;

pub(super) use api_call::{ApiCall, Unsent};
pub(super) use plot::Plot;
pub(super) use sample_request::SampleRequest;
