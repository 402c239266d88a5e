//! `petstore serve`

use std::sync::Arc;
use std::thread;

use clap::Args;
use tokio::runtime::{Builder, Runtime};

use super::{Create, Outcome, backup, open};
use crate::clock::Clock;
use crate::config::{Common, Service};
use crate::domain::Timestamp;
use crate::{app, server};

/// Run the service
#[derive(Args, Debug)]
pub struct Serve {
    #[command(flatten)]
    service: Service,
    #[command(flatten)]
    common: Common,
}

impl Serve {
    pub fn run(self) -> Outcome {
        backup::check(&self.service, &self.common)?;
        runtime()?.block_on(async {
            let store = Arc::new(open(&self.common, Create::PRODUCTION).await?);
            Ok(app::run(&self.service, store, async |_, _| Ok(())).await?)
        })
    }
}

/// Builds a runtime with one worker per core, because short database reads run on the workers. With a single core, the
/// current-thread runtime is cheaper: it never tries to share work.
///
/// # Errors
///
/// Fails if the system clock is before 1970, because dates, ids and certificates cannot express such a time.
pub fn runtime() -> std::io::Result<Runtime> {
    let now = Clock::System.now();
    if now < Timestamp::from_milliseconds(0) {
        let why = format!("the system clock is set to {now}: set it right, then start again");
        return Err(std::io::Error::other(why));
    }
    server::prepare_thread();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut builder = if cores > 1 { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().on_thread_start(server::prepare_thread).build()
}
