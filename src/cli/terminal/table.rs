//! Lists of records, as text tables or JSON.

use serde_json::Value;

use crate::cli::{Outcome, print, print_open};

/// A record of a list.
pub trait Listed {
    /// The heads of the columns.
    const HEAD: &[&str];

    /// The field of the object that each column shows.
    const FIELDS: &[&str];

    /// The object of the list in JSON.
    fn json(&self) -> Value;

    /// Returns the text of a field in the table.
    fn cell(_field: &str, value: &Value) -> String {
        shown(value)
    }
}

fn cells<T: Listed>(record: &T) -> Vec<String> {
    let object = record.json();
    T::FIELDS.iter().map(|field| T::cell(field, &object[field])).collect()
}

/// Formats a value: `-` for `null`, and a text without directional characters.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(is_true) => if *is_true { "yes" } else { "no" }.to_owned(),
        Value::String(text) => strip_bidi(text),
        other => other.to_string(),
    }
}

pub fn print_list<T: Listed>(records: &[T], as_json: bool) -> Outcome {
    let mut printed = PrintedList::new(as_json);
    printed.add(records)?;
    printed.end()
}

/// A list that is printed page by page. The columns of a table may become wider with a page.
pub struct PrintedList {
    as_json: bool,
    has_begun: bool,
    widths: Vec<usize>,
}

impl PrintedList {
    pub const fn new(as_json: bool) -> Self {
        Self { as_json, has_begun: false, widths: Vec::new() }
    }

    /// Returns false if the reader has closed the pipe.
    pub fn add<T: Listed>(&mut self, records: &[T]) -> Outcome<bool> {
        let has_begun = self.has_begun;
        if self.as_json {
            let page = serde_json::to_string_pretty(&records.iter().map(T::json).collect::<Vec<_>>())?;
            let Some(objects) = page.strip_prefix('[').and_then(|rest| rest.strip_suffix("\n]")) else {
                return Ok(true);
            };
            self.has_begun = true;
            return print_open(&format!("{}{objects}", if has_begun { "," } else { "[" }));
        }
        self.has_begun = true;
        let head = (!has_begun).then(|| T::HEAD.iter().map(|&head| head.to_owned()).collect());
        let rows: Vec<Vec<_>> = head.into_iter().chain(records.iter().map(cells)).collect();
        self.widths.resize(T::HEAD.len(), 0);
        for (column, width) in self.widths.iter_mut().enumerate() {
            *width = rows.iter().map(|row| row[column].chars().count()).fold(*width, usize::max);
        }
        let lines = rows.iter().map(|row| {
            let cells: Vec<_> = row.iter().zip(&self.widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            format!("{}\n", cells.join("  ").trim_end())
        });
        print_open(&lines.collect::<String>())
    }

    pub fn end(self) -> Outcome {
        match (self.as_json, self.has_begun) {
            (true, true) => print("\n]\n"),
            (true, false) => print("[]\n"),
            (false, _) => Ok(()),
        }
    }
}

/// Replaces directional formatting characters (Unicode Standard Annex #9). A user-chosen text could reorder other columns on
/// a terminal with them.
pub fn strip_bidi(text: &str) -> String {
    let is_directional =
        |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if is_directional(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
