//! Samples of a process's resources, and the check that they stay flat.

use std::fmt::Write;
use std::time::Duration;

/// Size of the write-ahead log that is never exceeded without a long read: four times that of a checkpoint.
const WAL: u64 = 64 << 20;

/// Descriptors that may come and go.
const DESCRIPTORS: f64 = 8.0;

/// The resources of a process at one time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub at: Duration,
    /// Number of the process: each restart begins another one.
    pub life: u32,
    pub memory: u64,
    pub descriptors: usize,
    pub wal: u64,
    /// The 99th percentile of the latencies since the last sample. `None` if there were too few requests.
    pub latency: Option<Duration>,
    pub requests: usize,
}

/// Factors by which medians may grow.
pub struct Growth {
    pub memory: f64,
    /// `None` on a machine that runs other tests, whose times mean little.
    pub latency: Option<f64>,
}

/// Returns what grew, in words. Empty if everything stayed flat.
pub fn growth(samples: &[Sample], allowed: &Growth) -> Vec<String> {
    let mut grown = Vec::new();
    let memory = |sample: &Sample| Some(sample.memory as f64);
    let descriptors = |sample: &Sample| Some(sample.descriptors as f64);
    let latency = |sample: &Sample| sample.latency.map(|latency| latency.as_secs_f64());
    // Over all processes after the first one, which fills the database and its caches.
    let first = samples.iter().map(|sample| sample.life).min();
    let later: Vec<_> = samples.iter().filter(|sample| Some(sample.life) != first).copied().collect();
    let mut compare = |what: &str, of: &[Sample], value: &dyn Fn(&Sample) -> Option<f64>, factor: f64, more: f64| {
        if let Some((early, late)) = thirds(of, value)
            && late > early * factor + more
        {
            grown.push(format!("{what} grew from {early} to {late}"));
        }
    };
    compare("memory from process to process", &later, &memory, allowed.memory, 0.0);
    compare("descriptors from process to process", samples, &descriptors, 1.0, DESCRIPTORS);
    if let Some(factor) = allowed.latency {
        compare("the latency", samples, &latency, factor, 0.0);
    }
    // Within the process that ran for the longest time.
    let lives = samples.iter().map(|sample| sample.life);
    let longest = lives.max_by_key(|life| samples.iter().filter(|sample| sample.life == *life).count());
    let longest: Vec<_> = samples.iter().filter(|sample| Some(sample.life) == longest).copied().collect();
    compare("descriptors of a process", &longest, &descriptors, 1.0, DESCRIPTORS);
    // Its caches fill in its first half.
    compare("memory of a process", &longest[longest.len() / 2..], &memory, allowed.memory, 0.0);
    if let Some(sample) = samples.iter().find(|sample| sample.wal > WAL) {
        grown.push(format!("the log has {} bytes after {:?}", sample.wal, sample.at));
    }
    grown
}

/// Returns the medians of the first and the last third. `None` if there are too few samples.
fn thirds(samples: &[Sample], value: &dyn Fn(&Sample) -> Option<f64>) -> Option<(f64, f64)> {
    let values: Vec<_> = samples.iter().filter_map(value).collect();
    let third = values.len() / 3;
    (third > 0).then(|| (median(&values[..third]), median(&values[values.len() - third..])))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The samples as comma-separated values, to plot.
pub fn table(samples: &[Sample]) -> String {
    let mut text = "seconds,process,memory,descriptors,wal,p99_ms,requests\n".to_owned();
    for Sample { at, life, memory, descriptors, wal, latency, requests } in samples {
        let latency = latency.map_or(String::new(), |latency| format!("{:.3}", latency.as_secs_f64() * 1e3));
        let at = at.as_secs_f64();
        writeln!(text, "{at:.1},{life},{memory},{descriptors},{wal},{latency},{requests}").unwrap();
    }
    text
}

#[test]
fn growth_of_each_resource_is_noticed() {
    let allowed = Growth { memory: 1.1, latency: Some(2.0) };
    let flat = |number: u32| Sample {
        at: Duration::from_secs(u64::from(number)),
        life: number / 10,
        memory: 50 << 20,
        descriptors: 30,
        wal: 16 << 20,
        latency: Some(Duration::from_millis(2)),
        requests: 100,
    };
    let series = |of: &dyn Fn(u32) -> Sample| (0..40).map(of).collect::<Vec<_>>();
    assert_eq!(growth(&series(&flat), &allowed), [""; 0]);
    let grown = [
        series(&|n| Sample { memory: (50 << 20) + u64::from(n) * (1 << 20), ..flat(n) }),
        series(&|n| Sample { memory: (50 << 20) + u64::from(n % 10) * (4 << 20), ..flat(n) }),
        series(&|n| Sample { descriptors: 30 + n as usize, ..flat(n) }),
        series(&|n| Sample { descriptors: 30 + 3 * (n % 10) as usize, ..flat(n) }),
        series(&|n| Sample { wal: u64::from(n) << 21, ..flat(n) }),
        series(&|n| Sample { latency: Some(Duration::from_millis(2 + u64::from(n))), ..flat(n) }),
    ];
    for series in grown {
        assert!(!growth(&series, &allowed).is_empty(), "{series:?}");
    }
}
