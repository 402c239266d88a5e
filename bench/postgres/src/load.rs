//! Tasks that insert or read one row after another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::clients::Client;

/// The first rows, which exist before.
const ROWS: u64 = 10_000;

/// Connections open, and statements are prepared, before the measurement.
const WARM_UP: Duration = Duration::from_secs(1);

/// Durations in microseconds of the operations of a task that began in the measurement, and the number of all.
type Done = (Vec<u32>, usize);

pub async fn run<C: Client>(client: C, writers: u64, readers: u64, seconds: u64) {
    let client = Arc::new(client);
    let begin = Instant::now() + WARM_UP;
    let end = begin + Duration::from_secs(seconds);
    let inserting = (0..writers).map(|task| {
        let client = Arc::clone(&client);
        tokio::spawn(repeat(begin, end, async move |number| {
            client.insert(&format!("guest {task} {number}")).await.unwrap();
        }))
    });
    let reading = (0..readers).map(|task| {
        let client = Arc::clone(&client);
        tokio::spawn(repeat(begin, end, async move |number| {
            let id = 1 + (task * 977 + number * 7_919) % ROWS;
            assert_eq!(client.find(id as i64).await.unwrap(), format!("guest {id}"));
        }))
    });
    let (inserting, reading): (Vec<_>, Vec<_>) = (inserting.collect(), reading.collect());
    let [(inserts, added), (reads, _)] = [join_all(inserting).await, join_all(reading).await].map(|tasks| {
        let (mut all, mut number) = (Vec::new(), 0);
        for (took, of_task) in tasks.into_iter().map(Result::unwrap) {
            all.extend(took);
            number += of_task;
        }
        all.sort_unstable();
        (all, number)
    });
    let rate = |all: &[u32]| all.len() as u64 / seconds;
    let p99 = |all: &[u32]| f64::from(all.get(all.len() * 99 / 100).copied().unwrap_or_default()) / 1e3;
    println!(
        r#"{{"inserts": {}, "p99_ms": {}, "reads": {}, "read_p99_ms": {}, "added": {added}}}"#,
        rate(&inserts),
        p99(&inserts),
        rate(&reads),
        p99(&reads)
    );
}

async fn repeat(begin: Instant, end: Instant, mut operation: impl AsyncFnMut(u64)) -> Done {
    let (mut took, mut number) = (Vec::new(), 0);
    loop {
        let at = Instant::now();
        if at >= end {
            return (took, number as usize);
        }
        operation(number).await;
        number += 1;
        if at >= begin {
            took.push(at.elapsed().as_micros() as u32);
        }
    }
}
