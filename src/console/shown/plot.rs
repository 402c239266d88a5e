//! The requests of the last hour as a bar chart, drawn on the server as SVG attributes because the page's policy allows
//! no inline styles.

use crate::api::counters::per_minute::{MINUTES, Requests};

/// Height of the chart in the units of its view box. A minute is 10 wide.
const HEIGHT: u64 = 100;

pub struct Plot {
    pub bars: Vec<Bar>,
    pub total: u64,
    pub failed: u64,
    /// Requests in the busiest minute.
    pub peak: u64,
}

/// The requests of a minute.
pub struct Bar {
    pub x: usize,
    pub height: u64,
    /// Height of the lower part of the bar, which stands for failed requests.
    pub failed: u64,
}

impl Plot {
    pub fn new(minutes: &[Requests; MINUTES]) -> Self {
        let counts = minutes.map(|minute| minute.succeeded + minute.failed);
        let peak = counts.into_iter().max().unwrap_or(0);
        // Small counts stay visible beside a large peak.
        let height = |count: u64| match count {
            0 => 0,
            _ => (count * HEIGHT / peak).max(2),
        };
        let bar = |(minute, count): (usize, u64)| Bar {
            x: minute * 10 + 1,
            height: height(count),
            failed: height(minutes[minute].failed),
        };
        let bars = counts.into_iter().enumerate().filter(|(_, count)| *count > 0).map(bar).collect();
        Self { bars, total: counts.iter().sum(), failed: minutes.iter().map(|minute| minute.failed).sum(), peak }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busiest_minute_has_full_height() {
        let mut minutes = [Requests::default(); MINUTES];
        minutes[0] = Requests { succeeded: 1, failed: 0 };
        minutes[30] = Requests { succeeded: 750, failed: 250 };
        minutes[59] = Requests { succeeded: 499, failed: 1 };
        let plot = Plot::new(&minutes);
        let bars: Vec<_> = plot.bars.iter().map(|bar| (bar.x, bar.height, bar.failed)).collect();
        assert_eq!(bars, [(1, 2, 0), (301, 100, 25), (591, 50, 2)]);
        assert_eq!((plot.total, plot.failed, plot.peak), (1_501, 251, 1_000));
        assert!(Plot::new(&[Requests::default(); MINUTES]).bars.is_empty());
    }
}
