//! One simulated world: a machine with one or two processes, clients, a web server, and faults.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use petstore::domain::{AccountId, Actor, NewAccount, Timestamp};
use petstore::runtime::clock::Clock;
use testkit::Random;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep};

use crate::audit;
use crate::client;
use crate::disk::{self, Disk};
use crate::ledger::{Checked, KnownKey, Ledger, role};
use crate::machine::Machine;
use crate::plan::Plan;
use crate::process::Process;
use crate::tally::{Event, Tally};
use crate::trace;
use crate::vfs;
use crate::web_server::WebServer;

/// 2026-11-20T09:30:00.123Z, when a simulation begins.
const BEGIN: Timestamp = Timestamp::from_milliseconds(1_795_167_000_123);

/// Maximum time from the last fault until the service has recovered and relayed all messages: a minute after the longest pause
/// of an account and delay of a message.
const RECOVERY: Duration = Duration::from_mins(6);

pub struct World {
    pub plan: Plan,
    pub clock: Clock,
    pub folder: PathBuf,
    pub ledger: RefCell<Ledger>,
    /// Receives the messages.
    pub web_server: WebServer,
    pub machine: RefCell<Machine>,
    pub tally: RefCell<Tally>,
    random: RefCell<Random>,
    numbers: Cell<u64>,
    /// The faults are over.
    is_calm: Cell<bool>,
    is_closing: Cell<bool>,
    violation: RefCell<Option<String>>,
}

const LOCK: &str = "petstore.lock";

/// The first database, and its keys.
#[derive(Clone, Default)]
pub struct Origin {
    pub files: BTreeMap<String, Vec<u8>>,
    /// The lock file, which is not on the simulated disk.
    pub lock: Vec<u8>,
    pub keys: Vec<KnownKey>,
}

/// Runs `work` in a new world, on this thread, with simulated time.
pub fn simulate<T>(
    seed: u64,
    plan: impl FnOnce(&mut Random) -> Plan,
    origin: &Origin,
    folder: &Path,
    work: impl AsyncFnOnce(Rc<World>) -> T,
) -> T {
    let mut random = Random::new(seed);
    vfs::seed_random_bytes(random.next());
    let plan = plan(&mut random);
    let mut disk = Disk::new(random.another(), folder, &origin.files);
    disk.character = plan.character;
    disk::insert(disk);
    fs::write(folder.join(LOCK), &origin.lock).unwrap();
    vfs::install();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let world = Rc::new(World {
        clock: Clock::fixed(BEGIN),
        folder: folder.to_owned(),
        ledger: RefCell::new(Ledger::new(origin.keys.clone())),
        web_server: WebServer::new(random.another(), plan.planted),
        machine: RefCell::new(Machine::new(plan.processes)),
        tally: RefCell::default(),
        random: RefCell::new(random),
        numbers: Cell::new(1),
        is_calm: Cell::new(false),
        is_closing: Cell::new(false),
        violation: RefCell::default(),
        plan,
    });
    LocalSet::new().block_on(&runtime, work(world))
}

/// Runs a world until its faults are over, it has recovered, and its database was checked.
pub async fn live(world: Rc<World>) -> (Checked, Tally) {
    let machine = spawn_local(Machine::run(Rc::clone(&world)));
    let faults = spawn_local(crate::faults::run(Rc::clone(&world)));
    let clients: Vec<_> =
        (0..world.plan.clients).map(|number| spawn_local(client::run(Rc::clone(&world), number))).collect();
    let end = Instant::now() + world.plan.duration;
    while Instant::now() < end && world.violation().is_none() {
        sleep(Duration::from_millis(100)).await;
    }
    world.is_calm.set(true);
    faults.await.unwrap();
    for client in clients {
        client.await.unwrap();
    }
    trace::note_text("calm", "");
    if world.violation().is_none() {
        world.check(recovered(&world).await);
    }
    world.is_closing.set(true);
    machine.await.unwrap();
    if world.violation().is_none() {
        world.check(audit::audit(&world));
    }
    world.count(Event::Seed);
    let stored = world.web_server.ids().len() as u64;
    world.tally.borrow_mut().count(Event::Stored, stored);
    (world.violation().map_or(Ok(()), Err), *world.tally.borrow())
}

/// Waits until the service writes again and has relayed all messages.
async fn recovered(world: &Rc<World>) -> Checked {
    let end = Instant::now() + RECOVERY;
    let mut last = "no process has started".to_owned();
    while Instant::now() < end {
        sleep(Duration::from_millis(200)).await;
        let Some(process) = world.any_process() else { continue };
        match process.store.count_unsent_messages(100).await {
            Ok(0) => return Ok(()),
            Ok(count) => last = format!("{count} messages are queued"),
            Err(error) => last = error.to_string(),
        }
    }
    Err(format!("{RECOVERY:?} after the last fault: {last}"))
}

impl World {
    /// Allows any file and log, as the operator does.
    pub fn allow_any_files(&self) {
        fs::write(self.folder.join(LOCK), "unchecked").unwrap();
    }

    /// A number below `end`.
    pub fn below(&self, end: u64) -> u64 {
        self.random.borrow_mut().below(end)
    }

    pub fn index(&self, length: usize) -> usize {
        self.random.borrow_mut().index(length)
    }

    /// A number that no other call returns.
    pub fn next_number(&self) -> u64 {
        self.numbers.replace(self.numbers.get() + 1)
    }

    pub fn count(&self, event: Event) {
        self.tally.borrow_mut().count(event, 1);
    }

    pub fn is_calm(&self) -> bool {
        self.is_calm.get()
    }

    /// Stops all processes.
    pub fn close(&self) {
        self.is_closing.set(true);
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.get()
    }

    /// A process that accepts connections. `None` if there is none at the moment.
    pub fn any_process(&self) -> Option<Rc<Process>> {
        let machine = self.machine.borrow();
        let running: Vec<_> = machine.running().collect();
        (!running.is_empty()).then(|| Rc::clone(running[self.index(running.len())]))
    }

    /// Keeps the first violation.
    pub fn check(&self, checked: Checked) {
        if let Err(why) = checked {
            trace::note_text("VIOLATION:", &why);
            self.violation.borrow_mut().get_or_insert(why);
            self.is_calm.set(true);
        }
    }

    pub fn violation(&self) -> Option<String> {
        self.violation.borrow().clone()
    }

    /// Creates the first database: an account of staff and two customers, with a key each.
    pub async fn create(self: Rc<Self>) -> Origin {
        let machine = spawn_local(Machine::run(Rc::clone(&self)));
        sleep(Duration::from_secs(1)).await;
        let process = self.any_process().expect("a process starts within a second");
        for (name, id) in [("ada", 1), ("ben", 2), ("eve", 3)] {
            let email = petstore::domain::Email::parse(&format!("{name}@example.com")).unwrap();
            let role = role(AccountId(id));
            let new = NewAccount { role, ..NewAccount::customer(email, None) };
            let account =
                process.store.create_account(new, Actor::command_line(self.clock.now())).await.unwrap().unwrap();
            crate::service::create_key(&self, &process.store, account, None).await.unwrap();
        }
        drop(process);
        self.is_closing.set(true);
        machine.await.unwrap();
        let keys = self.ledger.borrow().keys.clone();
        let lock = fs::read(self.folder.join(LOCK)).unwrap();
        Origin { files: disk::with(|disk| disk.contents()), lock, keys }
    }
}
