//! Resources of the process, under the names of Prometheus' client libraries.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::Exposition;

/// The process and its start time.
#[derive(Debug)]
pub struct Process {
    started: SystemTime,
}

impl Process {
    pub fn started_now() -> Self {
        Self { started: SystemTime::now() }
    }

    /// Writes the metrics. Omits what the system does not report.
    pub fn write(&self, out: &mut Exposition) {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        out.counter("process_cpu_seconds_total", "CPU time, user and system.").sample(&[], cpu);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if let Some(kibibytes) = number(&status, "VmRSS:") {
            out.gauge("process_resident_memory_bytes", "Resident memory.").sample(&[], kibibytes * 1024);
        }
        if let Some(kibibytes) = number(&status, "VmSize:") {
            out.gauge("process_virtual_memory_bytes", "Virtual memory.").sample(&[], kibibytes * 1024);
        }
        if let Some(threads) = number(&status, "Threads:") {
            out.gauge("process_threads", "Threads.").sample(&[], threads);
        }
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            // One of them is the folder being read.
            out.gauge("process_open_fds", "Open file descriptors.").sample(&[], open.count().saturating_sub(1));
        }
        if let Some(most) = getrlimit(Resource::Nofile).current {
            out.gauge("process_max_fds", "Maximum number of open file descriptors.").sample(&[], most);
        }
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        out.gauge("process_start_time_seconds", "Start time of the process, in seconds since 1970.")
            .sample(&[], started);
    }
}

/// Returns the number in the line of `/proc/self/status` that begins with `name`.
fn number(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
