//! Ends the threads that help a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Tells helper threads to end.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    pub fn request(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Requests the stop on drop. A scope waits for its threads even if the test has failed, so a test whose threads run
    /// until they are stopped holds this in the scope.
    pub const fn on_drop(&self) -> StopOnDrop<'_> {
        StopOnDrop(self)
    }
}

#[must_use]
#[derive(Debug)]
pub struct StopOnDrop<'a>(&'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.request();
    }
}
