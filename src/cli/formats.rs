//! Recognizes files in other formats than newline-delimited JSON, and suggests a command that converts them.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use super::{Failure, Outcome};

/// UTF-8's byte order mark, which Windows programs write at the start of a file.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Number of bytes to inspect: enough for the first line.
const BEGINNING: u64 = 64 * 1024;

/// Rejects a JSON array or CSV by its first line. Any other file passes, because each of its lines is checked later.
pub fn refuse_others(file: &mut File, path: &Path) -> Outcome {
    let mut beginning = Vec::new();
    file.take(BEGINNING).read_to_end(&mut beginning)?;
    file.rewind()?;
    let beginning = beginning.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&beginning);
    let line = beginning.trim_ascii_start().split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let (format, program) = if line.starts_with('[') {
        ("a JSON array", "jq -c '.[]'".to_owned())
    } else if let Some(delimiter) = csv_delimiter(&line) {
        ("CSV", from_csv(delimiter))
    } else {
        return Ok(());
    };
    let name = path.display();
    let command = command(&program, path);
    Err(Failure(format!(
        "nothing was imported: {name} is {format}, not newline-delimited JSON (one object per line, such as \
         {{\"name\":\"Rex\",\"categoryId\":3,\"status\":\"available\"}}). Convert it with:\n  {command}"
    )))
}

/// Returns the delimiter of a CSV header line. `None` if the line is not a CSV header.
fn csv_delimiter(header: &str) -> Option<char> {
    let is_name = |column: &str| column.trim().trim_matches('"').eq_ignore_ascii_case("name");
    [',', ';', '\t'].into_iter().find(|delimiter| header.contains(*delimiter) && header.split(*delimiter).any(is_name))
}

/// Returns a command that converts CSV. It uses Python, because jq cannot parse quoted fields.
fn from_csv(delimiter: char) -> String {
    let delimiter = if delimiter == ',' { String::new() } else { format!(", delimiter={:?}", delimiter.to_string()) };
    format!(
        "python3 -c 'import csv, json; [print(json.dumps({{**row, \"categoryId\": int(row[\"categoryId\"])}})) for row in \
         csv.DictReader(open(0, encoding=\"utf-8-sig\", newline=\"\"){delimiter})]'"
    )
}

fn command(program: &str, path: &Path) -> String {
    let input = if path == Path::new("-") { Path::new("animals") } else { path };
    let mut output = input.with_extension("ndjson");
    if output == input {
        output.set_extension("converted.ndjson");
    }
    format!("{program} < {} > {}", quoted(input), quoted(&output))
}

/// Quotes a path for a shell.
pub fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = path.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
    if is_plain { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}
