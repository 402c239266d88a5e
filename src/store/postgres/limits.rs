//! Timeouts of operations and of their parts.

use std::time::Duration;

/// Timeout of an operation. It then fails as `Unavailable`.
pub const OPERATION_TIMEOUT: Duration = Duration::from_millis(1_800);

/// Timeout of the readiness check. Below a second, because probes often give up after that time.
pub const CHECK_TIMEOUT: Duration = Duration::from_millis(800);

/// Part of an operation's timeout for a commit, including the confirmation of a synchronous standby. After that, the outcome
/// is unknown.
pub const COMMIT_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Part of an operation's timeout for a write to wait until a lost connection is replaced.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_millis(300);
