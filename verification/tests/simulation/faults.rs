//! The faults of a world, at random times.

use std::rc::Rc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::time::{Instant, sleep};

use crate::disk::{self, Faults};
use crate::lives::Victim;
use crate::machine::{FOREIGN, Machine, close_foreign};
use crate::plan::Fault;
use crate::trace;
use crate::world::World;

/// Causes faults until the world is calm, and ends them.
pub async fn run(world: Rc<World>) {
    let mut end_of_errors = Instant::now();
    while !world.is_calm() {
        let pause = Instant::now() + Duration::from_millis(1 + world.below(world.plan.pause));
        while Instant::now() < pause && !world.is_calm() {
            sleep(Duration::from_millis(20)).await;
            if end_of_errors <= Instant::now() {
                disk::with(|disk| disk.faults = Faults::default());
            }
        }
        let faults = &world.plan.faults;
        if world.is_calm() || faults.is_empty() {
            continue;
        }
        let fault = faults[world.index(faults.len())];
        trace::note_text("fault:", format!("{fault:?}"));
        end_of_errors = Instant::now() + Duration::from_millis(world.below(3_000));
        cause(&world, fault).await;
    }
    world.web_server.recover();
    disk::with(|disk| {
        disk.faults = Faults::default();
        disk.lives.clear_fuse();
    });
}

async fn cause(world: &Rc<World>, fault: Fault) {
    let rate = 1 + world.below(20);
    match fault {
        Fault::Kill => {
            if let Some((slot, process)) = Machine::take_any(world) {
                Machine::end(world, slot, process).await;
            }
        }
        Fault::KillDuringChange => {
            if let Some(process) = world.any_process() {
                set_fuse(world, Victim::Process(process.id));
            }
        }
        Fault::FailPower => disk::with(|disk| disk.lives.fail_power()),
        Fault::FailPowerDuringChange => set_fuse(world, Victim::Power),
        Fault::Restart => {
            if let Some((slot, process)) = Machine::take_any(world) {
                process.stop().await;
                Machine::end(world, slot, process).await;
            }
        }
        Fault::FailReads => disk::with(|disk| disk.faults.read = rate),
        Fault::FailWrites => disk::with(|disk| disk.faults.write = rate),
        Fault::FailSyncs => disk::with(|disk| disk.faults.sync = rate),
        Fault::FillDisk => disk::with(|disk| disk.faults.full = true),
        Fault::StopWebServer => world.web_server.stop_or_start(),
        Fault::LoseMessages => world.web_server.set_loss(world.below(101)),
        Fault::Disconnect => world.web_server.disconnect(),
        Fault::SetWallClock => {
            let (now, by) = (world.clock.now(), Duration::from_millis(world.below(200_000_000)));
            world.clock.jump_to(if world.below(2) == 0 { now.plus(by) } else { now.minus(by) });
        }
        Fault::Suspend => {
            // Not for so long that a client retries after its stored response has expired.
            let longest = [1_000, 60_000, 3_600_000, 30_000_000][world.index(4)];
            world.clock.advance(Duration::from_millis(world.below(longest)));
        }
        Fault::ForeignRead => open_foreign(world, "BEGIN; SELECT count(*) FROM pets"),
        Fault::ForeignWrite => open_foreign(world, "BEGIN IMMEDIATE"),
    }
}

fn set_fuse(world: &World, victim: Victim) {
    let changes = world.below(40) as u32;
    disk::with(|disk| disk.lives.set_fuse(changes, victim));
}

/// Opens the database as a command does, and leaves a transaction open for a while.
fn open_foreign(world: &World, sql: &str) {
    let mut machine = world.machine.borrow_mut();
    if machine.foreign.is_some() || !disk::with(|disk| disk.lives.has_power()) {
        return;
    }
    disk::with(|disk| {
        disk.lives.revive(FOREIGN);
        disk.running = FOREIGN;
    });
    let file = world.folder.join("petstore.db");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    close_foreign(world, || {
        if let Ok(connection) = Connection::open_with_flags(file, flags)
            && connection.execute_batch(sql).is_ok()
        {
            machine.foreign = Some((connection, Instant::now() + Duration::from_millis(world.below(8_000))));
        }
    });
}
