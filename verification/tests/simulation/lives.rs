//! The lives of the simulated processes, and of the machine that they share.

use std::collections::BTreeSet;

use testkit::Random;

use crate::trace;

/// A simulated process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

/// The machine or process that stops after a number of changes of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The machine loses its power.
    Power,
    Process(ProcessId),
}

#[derive(Debug, Default)]
pub struct Lives {
    dead: BTreeSet<ProcessId>,
    power_failed: bool,
    /// The number of changes until the victim stops.
    fuse: Option<(u32, Victim)>,
}

impl Lives {
    /// Stops the victim at the change after this many others.
    pub fn set_fuse(&mut self, changes: u32, victim: Victim) {
        self.fuse = Some((changes, victim));
    }

    pub fn clear_fuse(&mut self) {
        self.fuse = None;
    }

    /// Counts a change of the disk by a process. Returns a victim that stops before it.
    pub fn before_change(&mut self, process: ProcessId, random: &mut Random) -> Option<Victim> {
        let (left, victim) = self.fuse.as_mut().filter(|(_, victim)| concerns(*victim, process))?;
        if *left > 0 {
            *left -= 1;
            return None;
        }
        let victim = *victim;
        (random.below(2) == 0).then(|| self.stop(victim))
    }

    /// Returns a victim that stops after a change by a process.
    pub fn after_change(&mut self, process: ProcessId) -> Option<Victim> {
        let (_, victim) = self.fuse.filter(|(left, victim)| *left == 0 && concerns(*victim, process))?;
        Some(self.stop(victim))
    }

    fn stop(&mut self, victim: Victim) -> Victim {
        trace::note_text("stops during a change:", format!("{victim:?}"));
        match victim {
            Victim::Power => self.fail_power(),
            Victim::Process(process) => self.kill(process),
        }
        victim
    }

    pub fn kill(&mut self, process: ProcessId) {
        self.dead.insert(process);
        self.fuse = self.fuse.filter(|(_, victim)| *victim != Victim::Process(process));
    }

    pub fn revive(&mut self, process: ProcessId) {
        self.dead.remove(&process);
    }

    pub fn fail_power(&mut self) {
        (self.power_failed, self.fuse) = (true, None);
    }

    pub fn restore_power(&mut self) {
        *self = Self::default();
    }

    pub fn has_power(&self) -> bool {
        !self.power_failed
    }

    pub fn is_dead(&self, process: ProcessId) -> bool {
        self.power_failed || self.dead.contains(&process)
    }
}

fn concerns(victim: Victim, process: ProcessId) -> bool {
    victim == Victim::Power || victim == Victim::Process(process)
}
