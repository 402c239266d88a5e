//! Resources of the process, under the names of Prometheus' client libraries.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::Exposition;

/// Writes the metrics of the process, which has `started` then. Omits what the system does not report.
pub fn write_process(started: SystemTime, out: &mut Exposition) {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    out.value("process_cpu_seconds_total", cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let files = std::fs::read_dir("/proc/self/fd");
    for (name, value) in [
        ("process_resident_memory_bytes", number(&status, "VmRSS:").map(|kibibytes| kibibytes * 1024)),
        ("process_virtual_memory_bytes", number(&status, "VmSize:").map(|kibibytes| kibibytes * 1024)),
        ("process_threads", number(&status, "Threads:")),
        // One of them is the folder being read.
        ("process_open_fds", files.ok().map(|open| open.count().saturating_sub(1) as u64)),
        ("process_max_fds", getrlimit(Resource::Nofile).current),
    ] {
        if let Some(value) = value {
            out.value(name, value);
        }
    }
    let started = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    out.value("process_start_time_seconds", started.as_secs_f64());
}

/// Returns the number in the line of `/proc/self/status` that begins with `name`.
fn number(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
