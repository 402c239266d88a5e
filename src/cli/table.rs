//! Lists for people: columns as wide as what is in them.

use crate::domain::Timestamp;

pub fn table<const COLUMNS: usize>(head: [&str; COLUMNS], rows: impl Iterator<Item = [String; COLUMNS]>) -> String {
    let rows: Vec<_> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let lines = rows.iter().map(|row| {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    });
    lines.collect()
}

/// A point in time, where there is one.
pub fn moment(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| time.to_string())
}

/// What people chose (names, addresses, texts), without the characters that turn the direction of writing (Unicode annex
/// 9), which on a terminal would move what stands in other columns.
pub fn in_order(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if turns(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
