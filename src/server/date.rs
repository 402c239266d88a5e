//! The `Date` header, which hyper writes into every response.

use std::convert::Infallible;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

/// Makes hyper format its first date on this thread. Call it at the start of each thread that serves connections.
///
/// hyper caches a date for each thread, and panics if the system clock is before 1970 when it formats the first one.
/// Later, a clock that goes backwards leaves the cached date as it is.
pub fn prepare_thread() {
    if SystemTime::now() < UNIX_EPOCH {
        return;
    }
    let service = service_fn(async |_: Request<Incoming>| Ok::<_, Infallible>(Response::new(String::new())));
    let nobody = TokioIo::new(tokio::io::empty());
    let _ = http1::Builder::new().header_read_timeout(None).serve_connection(nobody, service).now_or_never();
}
