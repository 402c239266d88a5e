//! The sizes, the disk and the kinds of faults of a simulation, drawn from its seed.

use std::time::Duration;

use petstore::api::RateLimit;
use testkit::Random;

use crate::bugs::Bug;
use crate::disk::Character;
use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Kill,
    KillDuringChange,
    FailPower,
    FailPowerDuringChange,
    Restart,
    FailReads,
    FailWrites,
    FailSyncs,
    FillDisk,
    StopWebServer,
    LoseMessages,
    Disconnect,
    SetWallClock,
    Suspend,
    ForeignRead,
    ForeignWrite,
}

const FAULTS: [Fault; 16] = [
    Fault::Kill,
    Fault::KillDuringChange,
    Fault::FailPower,
    Fault::FailPowerDuringChange,
    Fault::Restart,
    Fault::FailReads,
    Fault::FailWrites,
    Fault::FailSyncs,
    Fault::FillDisk,
    Fault::StopWebServer,
    Fault::LoseMessages,
    Fault::Disconnect,
    Fault::SetWallClock,
    Fault::Suspend,
    Fault::ForeignRead,
    Fault::ForeignWrite,
];

pub struct Plan {
    pub planted: Option<Bug>,
    /// The time with clients and faults.
    pub duration: Duration,
    pub clients: u64,
    pub processes: usize,
    /// The faults that may happen, so that some seeds have few kinds, which are not hidden by others.
    pub faults: Vec<Fault>,
    /// Longest time between two faults, in milliseconds.
    pub pause: u64,
    /// Longest time of a commit, in milliseconds.
    latency: u64,
    pub limit: RateLimit,
    pub retention: Duration,
    pub queue: usize,
    pub checkpoint_pages: u32,
    pub wal_pages: u32,
    pub character: Character,
}

impl Plan {
    pub fn new(random: &mut Random, planted: Option<Bug>) -> Self {
        let share = 1 + random.below(4);
        let mut faults: Vec<Fault> = FAULTS.into_iter().filter(|_| random.below(4) < share).collect();
        // Another program does not end at a failed sync, and keeps SQLite's index of the log: see `SYNC_FAILED`.
        if faults.contains(&Fault::FailSyncs) {
            faults.retain(|fault| !matches!(fault, Fault::ForeignRead | Fault::ForeignWrite));
        }
        let processes = 1 + random.index(2);
        let limit = ["5/s", "60/min", "200/min", "1000/s"][random.index(4)];
        Self {
            planted,
            duration: Duration::from_millis(2_000 + random.below(8_000)),
            clients: 2 + random.below(5),
            processes,
            faults,
            pause: 500 + random.below(4_000),
            latency: 1 + random.below(60),
            limit: RateLimit::parse(limit).expect("a limit"),
            retention: Duration::from_secs([1, 60, 86_400][random.index(3)]),
            queue: [2, 4_096][random.index(2)],
            checkpoint_pages: [5, 30, 4_096][random.index(3)],
            wal_pages: [40, 245_000][random.index(2)],
            character: Character {
                lies: planted == Some(Bug::SyncsThatLie),
                // Other processes read for up to a second until they end, which then may return old rows.
                reverts_after_failed_sync: processes == 1 && random.below(2) == 0,
            },
        }
    }

    /// The plan of the world without faults that creates the first database.
    pub fn quiet() -> Self {
        let mut plan = Self::new(&mut Random::new(0), None);
        (plan.faults, plan.processes, plan.character) = (Vec::new(), 1, Character::default());
        (plan.queue, plan.checkpoint_pages, plan.wal_pages) = (4_096, 4_096, 245_000);
        plan
    }

    /// The time from a write to its commit.
    pub fn latency(&self, world: &World) -> Duration {
        Duration::from_millis(1 + world.below(self.latency))
    }
}
