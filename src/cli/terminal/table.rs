//! Lists of records, as text tables or JSON.

use serde_json::Value;

use crate::cli::{Outcome, print, print_json};

/// A record of a list.
pub trait Listed {
    /// The heads of the columns.
    const HEAD: &[&str];

    fn cells(&self) -> Vec<String>;

    fn json(&self) -> Value;
}

pub fn print_list<T: Listed>(records: &[T], as_json: bool) -> Outcome {
    if as_json {
        return print_json(&records.iter().map(T::json).collect::<Vec<_>>());
    }
    let head = T::HEAD.iter().map(|&head| head.to_owned()).collect();
    let rows: Vec<Vec<_>> = std::iter::once(head).chain(records.iter().map(T::cells)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..T::HEAD.len()).map(width).collect();
    let lines = rows.iter().map(|row| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    });
    print(&lines.collect::<String>())
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
