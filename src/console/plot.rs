//! The requests of the last hour as a bar chart, drawn on the server as SVG attributes because the page's policy allows
//! no inline styles.

use crate::http::request_history::MINUTES;

/// Height of the chart in the units of its view box. A minute is 10 wide.
const HEIGHT: u64 = 100;

pub struct Plot {
    pub bars: Vec<Bar>,
    pub total: u64,
    /// Requests in the busiest minute.
    pub peak: u64,
}

pub struct Bar {
    pub x: usize,
    pub y: u64,
    pub height: u64,
}

impl Plot {
    pub fn new(counts: &[u64; MINUTES]) -> Self {
        let peak = counts.iter().copied().max().unwrap_or(0);
        let bars = counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(minute, count)| {
            // Small counts stay visible beside a large peak.
            let height = (u128::from(*count) * u128::from(HEIGHT) / u128::from(peak)).max(2) as u64;
            Bar { x: minute * 10 + 1, y: HEIGHT - height, height }
        });
        Self { bars: bars.collect(), total: counts.iter().sum(), peak }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busiest_minute_has_full_height() {
        let mut counts = [0; MINUTES];
        (counts[0], counts[30], counts[59]) = (1, 1_000, 500);
        let plot = Plot::new(&counts);
        let bars: Vec<_> = plot.bars.iter().map(|bar| (bar.x, bar.y, bar.height)).collect();
        assert_eq!(bars, [(1, 98, 2), (301, 0, 100), (591, 50, 50)]);
        assert_eq!((plot.total, plot.peak), (1_501, 1_000));
        assert!(Plot::new(&[0; MINUTES]).bars.is_empty());
        assert_eq!(Plot::new(&[u64::MAX / 64; MINUTES]).bars.len(), MINUTES);
    }
}
