//! Progress of long commands.

use std::fmt;
use std::fs::File;
use std::time::Duration;

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// Delay before the remaining time is shown, because the first estimates are inaccurate.
const ESTIMATE_DELAY: Duration = Duration::from_secs(3);

/// Template of a bar that counts bytes.
pub const BYTES: &str = "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}{left}";

/// A progress bar, shown on a terminal only, and cleared when it is dropped. `{left}` in its template is the remaining time.
pub fn bar(length: u64, what: &'static str, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    let style = style.with_key("left", |state: &ProgressState, to: &mut dyn fmt::Write| {
        // On an error, only the remaining time is missing.
        let _ = to.write_str(&remaining(state.elapsed(), state.eta()));
    });
    ProgressBar::new(length).with_style(style).with_message(what)
}

/// Returns a function that shows how much of a copy is done, and of how much. Dropping it clears the bar.
pub fn of_copy(what: &'static str, template: &'static str) -> impl Fn(u64, u64) {
    let bar = bar(0, what, template);
    move |done, of| {
        bar.set_length(of);
        bar.set_position(done);
    }
}

/// A bar for reading a file.
pub fn of_file(file: &File, what: &'static str) -> ProgressBar {
    bar(file.metadata().map_or(0, |metadata| metadata.len()), what, BYTES)
}

fn remaining(elapsed: Duration, eta: Duration) -> String {
    if elapsed < ESTIMATE_DELAY { String::new() } else { format!(", {:#} left", HumanDuration(eta)) }
}

/// A number and what it counts: `1 animal`, `1,500 animals`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", HumanCount(count), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_is_shown_after_3_s() {
        let eta = Duration::from_secs(20);
        assert_eq!(remaining(Duration::from_secs(2), eta), "");
        assert_eq!(remaining(Duration::from_secs(3), eta), ", 20s left");
    }
}
