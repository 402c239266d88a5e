//! Lists of records, as text tables or JSON.

use serde_json::Value;

use crate::cli::{Outcome, print, print_json};

pub fn print_list<T>(records: &[T], as_json: bool, json: fn(&T) -> Value, table: fn(&[T]) -> String) -> Outcome {
    if as_json { print_json(&records.iter().map(json).collect::<Vec<_>>()) } else { print(&table(records)) }
}

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

/// Formats a value, or `-` for `None`.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Replaces directional formatting characters (Unicode Standard Annex #9). A user-chosen text could reorder other columns on
/// a terminal with them.
pub fn strip_bidi(text: &str) -> String {
    let is_directional =
        |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if is_directional(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
