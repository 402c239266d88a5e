//! A simulated process: the store with its writer, the key cache, the rate limits and the relay, on one thread.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use petstore::api::admission::keys::ApiKeyCache;
use petstore::api::admission::rate_limit::RateLimits;
use petstore::relay;
use petstore::runtime::clock::Clock;
use petstore::store::Store;
use petstore::store::sqlite::{Atomicity, DatabaseOptions, Effect, Options, Sqlite, WriteConnection, Writer};
use rusqlite::Connection;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use crate::bugs::Bug;
use crate::disk;
use crate::lives::ProcessId;
use crate::trace;
use crate::world::World;

/// The interval at which an idle writer does its housekeeping.
const HOUSEKEEPING: Duration = Duration::from_millis(500);

/// Interval of deleting expired responses.
const EXPIRY: Duration = Duration::from_secs(30);

/// The time that a stop may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Process {
    pub id: ProcessId,
    /// Distinguishes this start from others with the same id.
    pub incarnation: u64,
    pub store: Arc<Store>,
    pub keys: Arc<ApiKeyCache>,
    pub limits: RateLimits,
    pub status: Arc<relay::Status>,
    failed: Rc<Cell<bool>>,
    stop_relay: watch::Sender<bool>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

impl Process {
    /// Opens the store and starts what runs beside the requests.
    pub fn start(world: &Rc<World>, id: ProcessId) -> petstore::store::Result<Rc<Self>> {
        disk::with(|disk| {
            disk.lives.revive(id);
            disk.running = id;
            disk.show_in_folder();
        });
        let plan = &world.plan;
        let database = DatabaseOptions {
            queue: plan.queue,
            readers: 1,
            checkpoint_pages: plan.checkpoint_pages,
            wal_pages: plan.wal_pages,
            ..DatabaseOptions::default()
        };
        let options = Options { database, ..Options::new(&world.folder) };
        let mut writer = None;
        let opened = Sqlite::open_with(&options, true, |conn, started| {
            writer = Some((conn, started));
            Ok(())
        });
        let store = Arc::new(Store::Sqlite(opened?));
        let clock = world.clock.clone();
        let keys = Arc::new(ApiKeyCache::new(Arc::clone(&store), clock.clone()));
        let (stop_relay, stopped) = watch::channel(false);
        let (status, failed) = (Arc::new(relay::Status::default()), Rc::new(Cell::new(false)));
        let endpoint = world.web_server.endpoint(id);
        let process = Rc::new(Self {
            id,
            incarnation: world.next_number(),
            limits: RateLimits::new(plan.limit, clock.clone()),
            status: Arc::clone(&status),
            failed: Rc::clone(&failed),
            stop_relay,
            tasks: RefCell::default(),
            store: Arc::clone(&store),
            keys: Arc::clone(&keys),
        });
        let writer = writer.expect("an opened store has a writer");
        process.spawn(write(Rc::clone(world), id, writer, Arc::clone(&store), failed));
        process.spawn(relay::run(endpoint, plan.retention, Arc::clone(&store), clock.clone(), status, stopped));
        if plan.planted != Some(Bug::CacheAlone) {
            let keys = Arc::clone(&keys);
            process.spawn(async move { keys.follow().await });
        }
        process.spawn(async move { keys.write_down_uses().await });
        process.spawn(delete_expired(Arc::clone(&store), clock.clone()));
        match plan.planted {
            Some(Bug::RetentionOfUnsent) => process.spawn(delete_old_messages(store, clock, plan.retention)),
            Some(Bug::DeletedAnimal) => process.spawn(delete_greatest_animal(store)),
            _ => {}
        }
        Ok(process)
    }

    /// Runs a task that ends with the process.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.tasks.borrow_mut().push(spawn_local(task));
    }

    /// Returns whether the writer has failed, which ends a process.
    pub fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Stops as on SIGTERM.
    pub async fn stop(&self) {
        let stop = async {
            self.stop_relay.send_replace(true);
            self.keys.flush().await;
            self.store.close().await;
        };
        if timeout(STOP_TIMEOUT, stop).await.is_err() {
            trace::note_text("slow stop of process", self.id.0);
        }
    }

    /// Ends all tasks, and waits until the files are closed.
    pub async fn bury(self: Rc<Self>) {
        disk::with(|disk| {
            disk.kill(self.id);
            disk.running = self.id;
        });
        let tasks = self.tasks.take();
        tasks.iter().for_each(JoinHandle::abort);
        for task in tasks {
            if let Err(error) = task.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        let store = Arc::downgrade(&self.store);
        drop(Rc::into_inner(self).expect("no task outlives its process"));
        assert!(store.upgrade().is_none(), "a store outlives its process");
    }
}

/// Does what the writer's thread does. Each step comes a random time after the write that it begins with.
async fn write(
    world: Rc<World>,
    id: ProcessId,
    (conn, mut writer): (Connection, Writer),
    store: Arc<Store>,
    failed: Rc<Cell<bool>>,
) {
    let mut stepped = Instant::now();
    let connection = WriteConnection::new(&conn);
    let end = loop {
        sleep(world.plan.latency(&world)).await;
        if store.meters().writers[0].2 == 0 && stepped.elapsed() < HOUSEKEEPING && !world.is_closing() {
            continue;
        }
        stepped = Instant::now();
        disk::with(|disk| (disk.running, disk.shows_lengths) = (id, false));
        match writer.step(&connection, Duration::ZERO) {
            Ok(flow) if flow.is_continue() => {}
            Ok(_) => break Ok(()),
            Err(why) => break Err(why),
        }
    };
    if let Err(why) = &end {
        trace::note_text("fatal:", why);
        disk::with(|disk| disk.follow_truncation("petstore.db-wal"));
        failed.set(true);
    }
    drop(connection);
    writer.end(conn, end);
}

async fn delete_expired(store: Arc<Store>, clock: Clock) {
    loop {
        let _ = store.delete_expired_responses(clock.steady(), 256).await;
        sleep(EXPIRY).await;
    }
}

/// A planted bug.
async fn delete_old_messages(store: Arc<Store>, clock: Clock, retention: Duration) {
    loop {
        sleep(Duration::from_secs(2)).await;
        let before = clock.steady().minus(retention).as_milliseconds();
        let Store::Sqlite(db) = &*store else { unreachable!() };
        let delete = "DELETE FROM messages WHERE created_at < ?1";
        let _ = db.submit(Atomicity::Statement, Effect::Any, move |conn| Ok(conn.execute(delete, [before])?)).await;
    }
}

/// A planted bug.
async fn delete_greatest_animal(store: Arc<Store>) {
    loop {
        sleep(Duration::from_secs(3)).await;
        let Store::Sqlite(db) = &*store else { unreachable!() };
        let delete = "DELETE FROM pets WHERE id = (SELECT max(id) FROM pets) AND status = 0
            AND id NOT IN (SELECT pet_id FROM orders)";
        let _ = db.submit(Atomicity::Statement, Effect::Any, move |conn| Ok(conn.execute(delete, [])?)).await;
    }
}
