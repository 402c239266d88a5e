//! A ledger of writes during a fail-over.

use std::collections::HashSet;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::time::error::Elapsed;
use tokio_postgres::NoTls;

use crate::clients::{Client, Failure};

const TASKS: usize = 64;

/// A task gives a write up after this time. Its outcome is unknown then.
const PATIENCE: Duration = Duration::from_millis(1_800);

/// Pause of a task after a failure.
const PAUSE: Duration = Duration::from_millis(20);

/// Number of acknowledged writes after which the fail-over may begin.
const WARM_UP: usize = 5_000;

struct Ledger {
    acknowledged: Vec<String>,
    failed: Vec<String>,
    unknown: Vec<String>,
    last: Instant,
    longest_gap: Duration,
}

impl Ledger {
    /// Returns whether the write was acknowledged.
    fn record(&mut self, name: String, outcome: Result<Result<i64, Failure>, Elapsed>) -> bool {
        match outcome {
            Ok(Ok(_)) => {
                self.longest_gap = self.longest_gap.max(self.last.elapsed());
                self.last = Instant::now();
                self.acknowledged.push(name);
                return true;
            }
            Ok(Err(Failure::NotApplied(_))) => self.failed.push(name),
            Ok(Err(Failure::Unknown(_))) | Err(_) => self.unknown.push(name),
        }
        false
    }
}

/// Prints `ready` when the fail-over may begin, and the outcomes after it.
pub async fn run<C: Client>(client: C, hosts: &str) {
    let (client, is_over, next) = (Arc::new(client), Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let (last, longest_gap) = (Instant::now(), Duration::ZERO);
    let (acknowledged, failed, unknown) = Default::default();
    let ledger = Arc::new(Mutex::new(Ledger { acknowledged, failed, unknown, last, longest_gap }));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (client, is_over, next) = (Arc::clone(&client), Arc::clone(&is_over), Arc::clone(&next));
            let ledger = Arc::clone(&ledger);
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let name = format!("new {}", next.fetch_add(1, Ordering::Relaxed));
                    let outcome = tokio::time::timeout(PATIENCE, client.insert(&name)).await;
                    let is_acknowledged = ledger.lock().unwrap().record(name, outcome);
                    if !is_acknowledged {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            })
        })
        .collect();
    while ledger.lock().unwrap().acknowledged.len() < WARM_UP {
        tokio::time::sleep(PAUSE).await;
    }
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let rows = rows(hosts).await;
    let mut ledger = ledger.lock().unwrap();
    // One that never recovered.
    ledger.longest_gap = ledger.longest_gap.max(ledger.last.elapsed());
    let present = |names: &[String]| names.iter().filter(|name| rows.contains(*name)).count();
    println!(
        r#"{{"gap_s": {:.2}, "acknowledged": {}, "lost": {}, "failed": {}, "failed_but_applied": {}, "unknown": {}, "unknown_but_applied": {}}}"#,
        ledger.longest_gap.as_secs_f64(),
        ledger.acknowledged.len(),
        ledger.acknowledged.len() - present(&ledger.acknowledged),
        ledger.failed.len(),
        present(&ledger.failed),
        ledger.unknown.len(),
        present(&ledger.unknown),
    );
}

/// Returns the names on the server that accepts writes.
async fn rows(hosts: &str) -> HashSet<String> {
    let config = crate::clients::config(hosts);
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client.query("SELECT name FROM guests", &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}
