//! A file of animals as newline-delimited JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::iter;
use std::path::Path;

use indicatif::ProgressBar;
use rustix::fs::MemfdFlags;
use tracing::Level;

use crate::api::{ApiError, parse_new_pet};
use crate::cli::data::export::named;
use crate::cli::terminal::{interrupt, progress};
use crate::cli::{Outcome, tell};
use crate::config::Common;
use crate::domain::NewPet;
use crate::store::PetSource;

/// Maximum length of a line in bytes, as of a request body. Longer lines are not held in memory.
const LONGEST_LINE: u64 = 64 * 1024;

/// UTF-8's byte order mark, which Windows programs write at the start of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

const INTERRUPTED: &str = "interrupted: nothing was imported";

/// Maximum number of invalid lines to report individually.
const REPORTED: u64 = 20;

/// An open file of animals, at its start.
pub struct AnimalFile(File);

/// Returns the folder for [`AnimalFile::open`]. `None` with PostgreSQL, because no folder is surely writable.
pub fn temporary_folder(common: &Common) -> Option<&Path> {
    let existing = common.data_dir.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
    common.database_url.is_none().then_some(existing)
}

impl AnimalFile {
    /// Opens the file, or stdin for `-`. Stdin and pipes are copied to a temporary file in `folder`, or in memory if that
    /// is `None`, because the input is read twice.
    pub fn open(path: &Path, folder: Option<&Path>) -> Outcome<Self> {
        let opened = match path == Path::new("-") {
            true => spool(&mut io::stdin().lock(), folder),
            false => File::open(path).and_then(|mut file| match file.metadata()?.is_file() {
                true => Ok(file),
                false => spool(&mut file, folder),
            }),
        };
        Ok(Self(opened.map_err(|error| named(path, &error))?))
    }

    /// Reports invalid lines and returns the numbers of animals and of these lines. Fails after a signal.
    pub fn check(&mut self) -> Outcome<(u64, u64)> {
        let progress = progress::of_file(&self.0, "checking");
        let (mut animals, mut invalid) = (0, 0);
        for animal in lines(self.0.try_clone()?, progress.clone()) {
            if interrupt::is_received() {
                return Err(INTERRUPTED.into());
            }
            let Err(why) = animal? else {
                animals += 1;
                continue;
            };
            invalid += 1;
            if invalid <= REPORTED + 1 {
                let warning = if invalid > REPORTED { "further invalid lines are not shown" } else { &why };
                progress.suspend(|| tell(Level::WARN, warning));
            }
        }
        progress.finish_and_clear();
        if invalid > 0 {
            tell(Level::WARN, "each line must be one JSON object: see `petstore pets import --help`");
        }
        self.0.rewind()?;
        Ok((animals, invalid))
    }

    /// Returns the animals, which end with an error at an invalid line or after a signal. With `keep_going`, invalid lines
    /// are skipped.
    pub fn animals(self, keep_going: bool) -> PetSource {
        let progress = progress::of_file(&self.0, "importing");
        Box::new(lines(self.0, progress).filter_map(move |animal| match animal {
            _ if interrupt::is_received() => Some(Err(INTERRUPTED.to_owned())),
            Ok(Err(_)) if keep_going => None,
            Ok(animal) => Some(animal),
            Err(error) => Some(Err(error.to_string())),
        }))
    }
}

fn spool(source: &mut impl Read, folder: Option<&Path>) -> io::Result<File> {
    let mut copy = match folder {
        Some(folder) => tempfile::tempfile_in(folder)?,
        None => rustix::fs::memfd_create("animals", MemfdFlags::CLOEXEC)?.into(),
    };
    io::copy(source, &mut copy)?;
    copy.rewind()?;
    Ok(copy)
}

/// Parses each non-blank line of a file as an animal.
fn lines(file: File, progress: ProgressBar) -> impl Iterator<Item = io::Result<Result<NewPet, String>>> + Send {
    let (mut reader, mut number) = (BufReader::with_capacity(1 << 18, file), 0);
    let mut next = move || {
        let mut bytes = Vec::with_capacity(128);
        loop {
            bytes.clear();
            // A byte order mark, CR and LF do not count.
            if reader.by_ref().take(LONGEST_LINE + 5).read_until(b'\n', &mut bytes)? == 0 {
                return Ok(None);
            }
            number += 1;
            progress.inc(bytes.len() as u64);
            let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| number == 1).unwrap_or(line);
            let animal = if line.len() as u64 > LONGEST_LINE {
                if !bytes.ends_with(b"\n") {
                    let skipped = reader.skip_until(b'\n')?;
                    progress.inc(skipped as u64);
                }
                Err("The line is longer than 64 KiB.".to_owned())
            } else {
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                let text = std::str::from_utf8(line).map_err(|_| "The line is not UTF-8.".to_owned());
                text.and_then(|text| parse_new_pet(text).map_err(|error| describe(&error)))
            };
            return Ok(Some(animal.map_err(|why| format!("line {number}: {why}"))));
        }
    };
    iter::from_fn(move || next().transpose())
}

/// The parser sees a line as the body of a request, whose line number would mislead.
fn describe(error: &ApiError) -> String {
    error.message.replace("The body ", "The line ").replace(" at line 1 column ", " at column ")
}
