//! Timeouts of operations and of their parts.

use std::time::Duration;

/// Timeout of an operation, unless the URL has another one.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(1_800);

/// The timeout of an operation and those that follow from it.
#[derive(Clone, Copy, Debug)]
pub struct Limits(pub Duration);

/// Shortest timeout of an operation. Parts of a shorter one could be 0, which turns them off.
const SHORTEST: Duration = Duration::from_millis(100);

impl Limits {
    /// Timeout of an operation. It then fails as `Unavailable`.
    pub fn operation(self) -> Duration {
        self.0.max(SHORTEST)
    }

    /// Part of an operation's timeout for a commit, including the confirmation of a synchronous standby. After that, the
    /// outcome is unknown.
    pub fn commit(self) -> Duration {
        self.part(15)
    }

    /// Part of an operation's timeout for a write to wait until a lost connection is replaced.
    pub fn reconnect(self) -> Duration {
        self.part(3)
    }

    /// Timeout for a connection to one address, unless the URL has its own `connect_timeout`. Also the time for further
    /// hosts to answer before a server is chosen.
    pub fn connect(self) -> Duration {
        self.part(10)
    }

    /// Time for the last server to return before another is used. Requests fail meanwhile, also when it only restarts.
    pub fn grace(self) -> Duration {
        self.connect().min(Duration::from_secs(5))
    }

    /// Timeout for connecting to any of the hosts, and again for preparing the connection.
    pub fn open(self) -> Duration {
        self.part(30)
    }

    /// Sets the server's timeouts for a session. They bound how long a process that hangs, or has lost its network, delays
    /// others, and end statements that this process has abandoned. `lock_timeout` is shorter than the writer's wait for its batch
    /// ([`Self::commit`]), so that abandoned statements do not queue in the server.
    pub fn settings(self) -> String {
        let [transaction, lock, statement] = [5, 14, 50].map(|part| self.part(part).as_millis());
        format!(
            "SET idle_in_transaction_session_timeout = {transaction}; SET lock_timeout = {lock};
            SET statement_timeout = {statement}"
        )
    }

    /// By default, a part is 0.1 s.
    fn part(self, eighteenths: u32) -> Duration {
        let milliseconds = self.operation().as_millis() * u128::from(eighteenths) / 18;
        Duration::from_millis(u64::try_from(milliseconds).unwrap_or(u64::MAX))
    }
}
