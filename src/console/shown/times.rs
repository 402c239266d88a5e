//! Times for people, all in UTC.

use crate::domain::Timestamp;

/// `20 Nov 2026`
pub fn day(time: Timestamp) -> String {
    format(time, "%-d %b %Y")
}

/// `20 Nov 2026, 09:30 UTC`
pub fn moment(time: Timestamp) -> String {
    format(time, "%-d %b %Y, %H:%M UTC")
}

/// `20 Nov 2026, 09:30:00 UTC`
pub fn second(time: Timestamp) -> String {
    format(time, "%-d %b %Y, %H:%M:%S UTC")
}

/// Returns how long ago `time` was: `just now`, `5 minutes ago`.
pub fn ago(time: Timestamp, now: Timestamp) -> String {
    let minutes = (now.as_milliseconds() - time.as_milliseconds()).max(0) / 60_000;
    let (number, unit) = match minutes {
        0..2 => return "just now".to_owned(),
        2..120 => (minutes, "minutes"),
        120..2_880 => (minutes / 60, "hours"),
        _ => (minutes / 1_440, "days"),
    };
    format!("{number} {unit} ago")
}

fn format(time: Timestamp, format: &str) -> String {
    time.displayed().strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_for_people() {
        let time = Timestamp::from_milliseconds(1_795_167_000_123);
        assert_eq!((day(time).as_str(), moment(time).as_str()), ("20 Nov 2026", "20 Nov 2026, 09:30 UTC"));
        let after = |minutes: u64| ago(time, time.plus(std::time::Duration::from_secs(60 * minutes)));
        let said = [0, 1, 2, 119, 120, 2_879, 2_880].map(after);
        let expected =
            ["just now", "just now", "2 minutes ago", "119 minutes ago", "2 hours ago", "47 hours ago", "2 days ago"];
        assert_eq!(said, expected);
        assert_eq!(ago(time.plus(std::time::Duration::from_secs(9)), time), "just now");
        assert_eq!(day(Timestamp::from_milliseconds(i64::MAX)), "30 Dec 9999");
    }
}
