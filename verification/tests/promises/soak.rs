//! Promise 42: a long run under a mixed load. Meanwhile, the clock is stepped, certificates, logs and keys are renewed,
//! backups are made and restored, and processes and databases restart and fail over. No write is lost, requests fail only
//! during restarts and fail-overs, and resources stay flat.

use std::collections::HashMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use testkit::{Certificate, Connection, Database, Random, Request, Signal, TIMEOUT, new_pet, succeed, trial, within};
use verification::PostgresPair;

use crate::soak_judge::{Growth, Sample, growth, table};
use crate::soak_load::Traffic;
use crate::soak_service::{Instance, wait_until_presented};

const CLIENTS: usize = 8;

/// Each event happens once per cycle.
const CYCLE: Duration = Duration::from_secs(600);

/// Animals at the start of a full run. Each process reads them at random, so the caches of SQLite's readers fill at the same
/// rate in all.
const ANIMALS: usize = 1_000_000;

/// Time until an old key stops working beside its successor. Longer than a request takes that was sent with it.
fn overlap() -> Duration {
    Duration::from_secs(if trial::is_full() { 2 } else { 15 })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Backup,
    KeyRotation,
    CertificateRenewal,
    LogRotation,
    Expiry,
    ClockStep,
    Restart,
    FailOver,
}

use Event::*;

#[test]
fn embedded_database_stays_flat_through_every_event() {
    let events = [Backup, KeyRotation, CertificateRenewal, LogRotation, Expiry, ClockStep, Restart];
    let folder = tempfile::tempdir().unwrap();
    let authority = Certificate::of_authority(folder.path(), "authority");
    let soak = Soak::start(Database::folder(&folder.path().join("data")), folder.path(), 1, Some(authority), None);
    let measured = soak.run("sqlite", &events);
    leaked_descriptors_are_noticed();
    trial::measured(&format!("{measured}; leaked descriptors and a deleted row are noticed"));
}

#[test]
fn postgresql_stays_flat_through_every_event() {
    // In the short run, every other event must follow a fail-over too.
    let events = [FailOver, KeyRotation, LogRotation, Expiry, ClockStep, Restart];
    let folder = tempfile::tempdir().unwrap();
    let pair = PostgresPair::start();
    let soak = Soak::start(Database::url(pair.url()), folder.path(), 2, None, Some(pair));
    trial::measured(&soak.run("postgresql", &events));
}

struct Soak {
    database: Database,
    folder: PathBuf,
    instances: Mutex<Vec<Instance>>,
    traffic: Traffic,
    imported: usize,
    certificate: Option<Certificate>,
    pair: Mutex<Option<PostgresPair>>,
    began: Instant,
}

impl Soak {
    fn start(
        database: Database,
        folder: &Path,
        processes: usize,
        authority: Option<Certificate>,
        pair: Option<PostgresPair>,
    ) -> Self {
        let keys = [database.make_key(), database.customer("customer@example.com")];
        let sign = |authority: &Certificate| authority.sign(folder, "server", "IP:127.0.0.1");
        let certificate = authority.as_ref().map(sign);
        let instances =
            (0..processes).map(|n| Instance::new(&database, folder.join(format!("{n}.log")), certificate.as_ref()));
        let mut instances: Vec<_> = instances.collect();
        let traffic = Traffic::new(keys, instances.iter().map(Instance::addresses).collect(), authority);
        let imported = if trial::is_full() { ANIMALS } else { ANIMALS / 1_000 };
        import(&database, imported, &traffic);
        instances.iter_mut().for_each(|instance| instance.start(&traffic));
        let (instances, pair) = (Mutex::new(instances), Mutex::new(pair));
        Self {
            database,
            folder: folder.to_owned(),
            instances,
            traffic,
            imported,
            certificate,
            pair,
            began: Instant::now(),
        }
    }

    /// Runs the load and the events. Returns the measurement in words.
    fn run(self, name: &str, events: &[Event]) -> String {
        let mut random = Random::from_seed();
        let time = Duration::from_mins(1) * trial::rounds(1);
        let (pause, every) = match trial::is_full() {
            true => (CYCLE / events.len() as u32, Duration::from_secs(10)),
            false => (Duration::from_millis(500), Duration::from_millis(250)),
        };
        let samples = Mutex::new(Vec::new());
        let mut happened: Vec<Event> = Vec::new();
        thread::scope(|scope| {
            let _stop = self.traffic.stop.on_drop();
            for client in 0..CLIENTS {
                let (traffic, mut random) = (&self.traffic, random.another());
                scope.spawn(move || traffic.work(client, &mut random));
            }
            scope.spawn(|| {
                while !self.traffic.stop.is_requested() {
                    thread::sleep(every);
                    let instances = self.instances.lock().unwrap();
                    samples.lock().unwrap().extend(instances[0].sample(self.began, &self.traffic));
                }
            });
            let until = Instant::now() + time;
            for (number, event) in events.iter().cycle().enumerate() {
                if number >= events.len() && (!trial::is_full() || Instant::now() >= until) {
                    break;
                }
                thread::sleep(pause);
                println!("{name}, {:.0?}: {event:?}, {}", self.began.elapsed(), self.traffic.ledger);
                self.cause(*event, number, &mut random);
                happened.push(*event);
            }
            thread::sleep(pause);
        });
        self.judge(name, &happened, &samples.into_inner().unwrap())
    }

    fn cause(&self, event: Event, number: usize, random: &mut Random) {
        match event {
            Backup => self.back_up(number),
            KeyRotation => self.rotate_keys(),
            CertificateRenewal => self.renew_certificate(number),
            Expiry => self.expire_responses(),
            LogRotation => self.each(|instance| instance.rotate_log(&self.traffic)),
            ClockStep => {
                for step in ["+1d", "-1h", "+0"] {
                    self.each(|instance| instance.clock.set(step));
                    random.sleep(200..400);
                }
            }
            Restart => self.traffic.disturbed(|| {
                let instance = &mut self.instances.lock().unwrap()[0];
                instance.stop(&self.traffic);
                instance.start(&self.traffic);
            }),
            FailOver => self.traffic.disturbed(|| {
                self.pair.lock().unwrap().as_mut().expect("there are two servers").fail_over();
                let ready = |instance: &mut Instance| {
                    let address = instance.addresses().0;
                    let request = || Request::new(address, "GET", "/readyz");
                    within(TIMEOUT, "connecting again", || {
                        self.traffic.exchange(address, request()).is_ok_and(|response| response.status() == 200)
                    });
                };
                self.each(ready);
            }),
        }
    }

    fn each(&self, work: impl FnMut(&mut Instance)) {
        self.instances.lock().unwrap().iter_mut().for_each(work);
    }

    /// Backs up, restores elsewhere, and compares that with what was acknowledged before.
    fn back_up(&self, number: usize) {
        let before = self.traffic.ledger.acknowledgements();
        let backup = self.folder.join(format!("backup-{number}"));
        let restored = Database::folder(&self.folder.join("restored"));
        succeed(self.database.petstore("backup").arg(&backup));
        succeed(restored.petstore("restore").arg(&backup));
        if let Some(why) = self.traffic.ledger.as_of(before).compare(&restored).violation() {
            self.traffic.violation(format!("the backup: {why}"));
        }
        fs::remove_file(backup).unwrap();
        fs::remove_dir_all(restored.data_dir()).unwrap();
    }

    /// Replaces the keys of the clients. The old ones must stop working.
    fn rotate_keys(&self) {
        let old = (1..).zip(&self.traffic.keys).map(|(account, key)| {
            let id = self.database.sql(&format!("SELECT max(id) FROM api_keys WHERE account_id = {account}"));
            let new = self.database.run(&format!("key rotate {id} --overlap {}s", overlap().as_secs()));
            std::mem::replace(&mut *key.write().unwrap(), new.trim().to_owned())
        });
        let old: Vec<_> = old.collect();
        thread::sleep(overlap());
        let address = self.traffic.addresses[0].0;
        let is_rejected = |key: &String| {
            let request = Request::new(address, "GET", "/v1/pets?limit=1").key(key);
            self.traffic.exchange(address, request).is_ok_and(|response| response.status() == 401)
        };
        within(TIMEOUT, "the end of the old keys", || old.iter().all(is_rejected));
    }

    /// Lets stored responses expire, as a day does. Otherwise, their index would grow in SQLite's cache during the whole run.
    /// Those of the cycle before must be deleted.
    fn expire_responses(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let left = format!("SELECT count(*) FROM idempotency_records WHERE expires_at <= {}", now.as_millis());
        let left = self.database.sql(&left);
        if left != "0" {
            self.traffic.violation(format!("{left} responses are kept after their expiry"));
        }
        // Clients may still retry the requests of the last minute.
        let old = now + Duration::from_hours(24) - Duration::from_mins(1);
        let (now, old) = (now.as_millis(), old.as_millis());
        self.database.sql(&format!("UPDATE idempotency_records SET expires_at = {now} WHERE expires_at < {old}"));
    }

    /// Replaces the certificate. The process must use it after SIGHUP.
    fn renew_certificate(&self, number: usize) {
        let (Some(authority), Some(certificate)) = (&self.traffic.authority, &self.certificate) else {
            unreachable!("it serves TLS");
        };
        let renewed = authority.sign(&self.folder, &format!("renewed-{number}"), "IP:127.0.0.1");
        renewed.replace(certificate);
        self.each(|instance| {
            instance.process().signal(Signal::HUP);
            wait_until_presented(authority, instance.addresses().0, &renewed);
        });
    }

    /// Stops, compares the ledger with the database, and judges the samples.
    fn judge(self, name: &str, happened: &[Event], samples: &[Sample]) -> String {
        self.each(|instance| instance.stop(&self.traffic));
        let file = petstore_target().join(format!("soak-{name}.csv"));
        fs::write(&file, table(samples)).unwrap();
        let ledger = &self.traffic.ledger;
        let mut violations = self.traffic.violations();
        violations.extend(ledger.compare(&self.database).violation().map(|why| format!("the ledger: {why}")));
        let orders = [std::mem::take(&mut *self.traffic.orders.lock().unwrap())];
        violations.extend(crate::orders::violations(&orders, &self.database, CLIENTS));
        let allowed = match trial::is_full() {
            true => Growth { memory: 1.2, latency: Some(2.0) },
            false => Growth { memory: 2.0, latency: None },
        };
        violations.extend(growth(samples, &allowed));
        assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
        let orders = orders[0].len();
        assert!(
            ledger.acknowledged() > self.imported + 20 && orders > 0,
            "little was tested: {ledger}, {orders} orders"
        );
        ledger.notices_damage(&self.database);
        let mut counts: HashMap<String, usize> = HashMap::new();
        happened.iter().for_each(|event| *counts.entry(format!("{event:?}")).or_default() += 1);
        let mut counts: Vec<_> = counts.into_iter().map(|(event, count)| format!("{count} × {event}")).collect();
        counts.sort();
        let most = |value: fn(&Sample) -> u64| samples.iter().map(value).max().unwrap_or_default();
        format!(
            "{name} for {:.0} minutes with {} imported animals: {} requests, {ledger}, {orders} orders of a customer, 0 lost, {} failed while that was announced, 0 at another time; {}; \
             at most {} MiB of memory, {} descriptors and {} MiB of log",
            self.began.elapsed().as_secs_f64() / 60.0,
            self.imported,
            self.traffic.requests.load(Ordering::Relaxed),
            self.traffic.announced.load(Ordering::Relaxed),
            counts.join(", "),
            most(|sample| sample.memory) >> 20,
            most(|sample| sample.descriptors as u64),
            most(|sample| sample.wal) >> 20,
        )
    }
}

/// Imports animals and records them in the ledger.
fn import(database: &Database, animals: usize, traffic: &Traffic) {
    let mut file = BufWriter::new(tempfile::NamedTempFile::new().unwrap());
    // Long names, so that the database is larger than the caches.
    (0..animals).for_each(|number| writeln!(file, "{}", new_pet(&format!("imported-{number:064}"))).unwrap());
    let file = file.into_inner().unwrap();
    database.run(&format!("pets import {}", file.path().display()));
    let rows = database.sql("SELECT name, id FROM pets");
    let rows = rows.lines().map(|row| row.split_once('|').unwrap());
    let imported: HashMap<_, _> = rows.map(|(name, id)| (name.to_owned(), id.to_owned())).collect();
    assert_eq!(imported.len(), animals);
    traffic.imported(imported);
}

/// Control: the descriptors of idle connections that accumulate are noticed.
fn leaked_descriptors_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(&folder.path().join("data"));
    let mut instance = Instance::new(&database, folder.path().join("log"), None);
    let traffic = Traffic::new([(); 2].map(|()| String::new()), vec![instance.addresses()], None);
    instance.start(&traffic);
    let (mut leaked, began) = (Vec::new(), Instant::now());
    let request = Request::new(instance.addresses().0, "GET", "/livez");
    let samples: Vec<_> = (0..12)
        .map(|_| {
            for _ in 0..2 {
                let mut connection = Connection::open(instance.addresses().0).unwrap();
                // The response says that the service has accepted it.
                connection.send(&request).unwrap();
                leaked.push(connection);
            }
            instance.sample(began, &traffic).unwrap()
        })
        .collect();
    let grown = growth(&samples, &Growth { memory: 2.0, latency: None });
    assert!(grown.iter().any(|what| what.starts_with("descriptors")), "a leak is not noticed: {samples:?}");
    instance.stop(&traffic);
}

/// The folder of built programs.
fn petstore_target() -> PathBuf {
    Path::new(testkit::petstore()).parent().and_then(Path::parent).expect("target/PROFILE/petstore").to_owned()
}
