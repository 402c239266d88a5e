//! The parts of pages that show API calls: the call itself, samples in several languages, plots and times.

pub(super) mod api_call;
pub(super) mod curl;
pub(super) mod plot;
pub(super) mod sample_request;
pub(super) mod times;
