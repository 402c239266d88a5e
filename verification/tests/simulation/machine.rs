//! The machine: its clock, its power, and the processes that its supervisor starts.

use std::rc::Rc;
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::{Instant, sleep};

use crate::disk::{self, Disk};
use crate::lives::ProcessId;
use crate::process::Process;
use crate::tally::Event;
use crate::trace;
use crate::world::World;

/// Interval at which the clock moves and processes are checked.
const TICK: Duration = Duration::from_millis(10);

pub struct Machine {
    slots: Vec<Slot>,
    /// The connection of a command, and the time at which it closes.
    pub foreign: Option<(Connection, Instant)>,
}

enum Slot {
    Running(Rc<Process>),
    /// The process starts at this time.
    Down(Instant),
    /// The supervisor is starting or ending the process.
    Ending,
}

/// The process of a foreign connection.
pub const FOREIGN: ProcessId = ProcessId(9);

/// Closes a foreign connection. If it removes the log of killed processes, the operator allows the file without it, as the
/// runbook says.
pub fn close_foreign(world: &World, close: impl FnOnce()) {
    let has_log = || disk::with(|disk| disk.has_file("petstore.db-wal"));
    let had_log = has_log();
    close();
    if had_log && !has_log() {
        trace::note_text("the log is gone, the file is allowed", "");
        world.allow_any_files();
    }
}

impl Machine {
    pub fn new(processes: usize) -> Self {
        Self { slots: (0..processes).map(|_| Slot::Down(Instant::now())).collect(), foreign: None }
    }

    pub fn running(&self) -> impl Iterator<Item = &Rc<Process>> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Running(process) => Some(process),
            _ => None,
        })
    }

    /// Takes a running process away from the clients.
    pub fn take_any(world: &World) -> Option<(usize, Rc<Process>)> {
        let slots = &mut world.machine.borrow_mut().slots;
        let chosen = world.index(slots.len());
        match std::mem::replace(&mut slots[chosen], Slot::Ending) {
            Slot::Running(process) => Some((chosen, process)),
            other => {
                slots[chosen] = other;
                None
            }
        }
    }

    /// Ends a process that was taken away. It starts again after a while.
    pub async fn end(world: &World, slot: usize, process: Rc<Process>) {
        trace::note_text("end of process", process.id.0);
        world.count(if process.has_failed() { Event::FailedWriter } else { Event::End });
        process.bury().await;
        world.machine.borrow_mut().slots[slot] = Slot::Down(Instant::now() + Duration::from_millis(world.below(1_000)));
    }

    /// Supervises the processes until the world ends.
    pub async fn run(world: Rc<World>) {
        let mut last = Instant::now();
        loop {
            sleep(TICK).await;
            world.clock.advance(last.elapsed());
            last = Instant::now();
            let processes = world.machine.borrow().slots.len();
            for slot in 0..processes {
                Self::supervise(&world, slot).await;
            }
            Self::return_foreign(&world);
            let is_down = world.machine.borrow().slots.iter().all(|slot| matches!(slot, Slot::Down(_)));
            if is_down && !disk::with(|disk| disk.lives.has_power()) {
                trace::note_text("power is back", "");
                world.count(Event::PowerFailure);
                disk::with(Disk::restore_power);
            }
            if world.is_closing() {
                return Self::stop_all(&world).await;
            }
        }
    }

    async fn supervise(world: &Rc<World>, slot: usize) {
        let ended = {
            let slot = &mut world.machine.borrow_mut().slots[slot];
            match slot {
                Slot::Running(process) if process.has_failed() || disk::with(|disk| disk.is_dead(process.id)) => {
                    std::mem::replace(slot, Slot::Ending)
                }
                Slot::Down(until) if *until <= Instant::now() && disk::with(|disk| disk.lives.has_power()) => {
                    std::mem::replace(slot, Slot::Ending)
                }
                _ => return,
            }
        };
        if let Slot::Running(process) = ended {
            return Self::end(world, slot, process).await;
        }
        let id = ProcessId(slot as u32);
        let next = match Process::start(world, id) {
            Ok(process) => {
                trace::note_text("start of process", id.0);
                Slot::Running(process)
            }
            Err(error) => {
                trace::note_text("no start:", error);
                disk::with(|disk| disk.kill(id));
                Slot::Down(Instant::now() + Duration::from_millis(100 + world.below(500)))
            }
        };
        world.machine.borrow_mut().slots[slot] = next;
    }

    /// Closes the foreign connection when its time is over.
    fn return_foreign(world: &World) {
        let mut machine = world.machine.borrow_mut();
        let is_over = |(_, until): &(Connection, Instant)| *until <= Instant::now() || world.is_calm();
        if !disk::with(|disk| disk.lives.has_power()) || machine.foreign.as_ref().is_some_and(is_over) {
            disk::with(|disk| disk.running = FOREIGN);
            close_foreign(world, || machine.foreign = None);
        }
    }

    async fn stop_all(world: &Rc<World>) {
        let slots = std::mem::take(&mut world.machine.borrow_mut().slots);
        for slot in slots {
            if let Slot::Running(process) = slot {
                process.stop().await;
                process.bury().await;
            }
        }
    }
}
