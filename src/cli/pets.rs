//! `petstore pets`

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use tracing::Level;

use super::export::{self, named};
use super::progress::{self, counted};
use super::{Create, Failure, Outcome, formats, interrupt, tell, with_store};
use crate::config::Common;
use crate::domain::{NewPet, Pet};
use crate::http::{InvalidObject, parse_new_pet};
use crate::representation::write_pet;

/// Maximum length of a line in bytes, as of a request body. Longer lines are not held in memory.
const LONGEST_LINE: u64 = 64 * 1024;

const INTERRUPTED: &str = "interrupted: nothing was imported";

/// Maximum number of invalid lines to report individually.
const REPORTED: u64 = 20;

#[derive(Subcommand, Debug)]
pub enum Pets {
    Import(Import),
    Export(Export),
}

/// Import animals from newline-delimited JSON
///
/// Each line is an object as in `POST /pets`. All lines are validated before any animal is added, and all animals are
/// added in one transaction. They get new ids: an `id`, as in an export, is ignored.
///
/// The service may be running. Adding a million animals takes a few seconds. Meanwhile, reads continue and writes wait;
/// a write that waits for 5 seconds gets a 503 response. With PostgreSQL, only new animals wait, in the last step, and
/// get a 503 response after 1.4 seconds.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  petstore pets import animals.ndjson
  jq -c '.[]' animals.json | petstore pets import -")]
pub struct Import {
    /// File to import, or - for stdin
    file: PathBuf,
    /// Skip invalid lines instead of importing nothing
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    common: Common,
}

/// Export all animals as newline-delimited JSON
///
/// Animals are sorted by id.
///
/// The export is not a consistent snapshot, unlike `petstore backup`. It contains every animal that exists at its start
/// exactly once, in the state at the time when its page of 1,000 is read, and may contain animals added meanwhile. The
/// service is not blocked, however slowly the output is read.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  petstore pets export animals.ndjson
  petstore pets export | gzip > animals.ndjson.gz")]
pub struct Export {
    #[command(flatten)]
    target: export::Target,
    #[command(flatten)]
    common: Common,
}

impl Pets {
    pub fn run(self) -> Outcome {
        match self {
            Self::Import(command) => command.run(),
            Self::Export(command) => command.run(),
        }
    }
}

impl Import {
    fn run(self) -> Outcome {
        let mut file = open(&self.file)?;
        // Caught only after `open`, so that a signal can end the process while `open` waits for a pipe.
        interrupt::catch()?;
        formats::refuse_others(&mut file, &self.file)?;
        let invalid = check(&file)?;
        if invalid > 0 && !self.keep_going {
            return Err(Failure(format!(
                "nothing was imported: {}; use --keep-going to skip them",
                counted(invalid, "invalid line")
            )));
        }
        file.rewind()?;
        let progress = progress::of_file(&file, "importing");
        let keep_going = self.keep_going;
        let animals = Lines::new(file, progress.clone()).filter_map(move |line| match line {
            _ if interrupt::is_received() => Some(Err(INTERRUPTED.to_owned())),
            Ok(line) => match line.animal {
                Err(_) if keep_going => None,
                animal => Some(animal.map_err(|why| format!("line {}: {why}", line.number))),
            },
            Err(error) => Some(Err(error.to_string())),
        });
        let added = with_store(&self.common, Create::PRODUCTION, async |store| {
            Ok(store.import_pets(Box::new(animals)).await?)
        });
        progress.finish_and_clear();
        let added = added?;
        let skipped =
            if invalid > 0 { format!(", skipped {}", counted(invalid, "invalid line")) } else { String::new() };
        tell(Level::INFO, &format!("imported {}{skipped}", counted(added, "animal")));
        Ok(())
    }
}

/// Reports invalid lines and returns their number.
fn check(file: &File) -> Result<u64, Failure> {
    let progress = progress::of_file(file, "checking");
    let mut invalid = 0;
    for line in Lines::new(file.try_clone()?, progress.clone()) {
        let line = line?;
        if interrupt::is_received() {
            progress.finish_and_clear();
            return Err(Failure(INTERRUPTED.into()));
        }
        if let Err(why) = line.animal {
            invalid += 1;
            match invalid {
                ..=REPORTED => progress.suspend(|| tell(Level::WARN, &format!("line {}: {why}", line.number))),
                _ if invalid == REPORTED + 1 => {
                    progress.suspend(|| tell(Level::WARN, "further invalid lines are not shown"));
                }
                _ => {}
            }
        }
    }
    progress.finish_and_clear();
    Ok(invalid)
}

/// Opens the input. Stdin and pipes are copied to a temporary file, because the input is read twice.
fn open(path: &Path) -> Result<File, Failure> {
    if path == Path::new("-") {
        return Ok(spool(&mut io::stdin().lock())?);
    }
    let opened = File::open(path).and_then(|mut file| match file.metadata()?.is_file() {
        true => Ok(file),
        false => spool(&mut file),
    });
    opened.map_err(|error| named(path, &error))
}

fn spool(source: &mut impl Read) -> io::Result<File> {
    let mut copy = tempfile::tempfile()?;
    io::copy(source, &mut copy)?;
    copy.rewind()?;
    Ok(copy)
}

/// The non-blank lines of a file, each parsed as an animal.
struct Lines {
    reader: BufReader<File>,
    number: u64,
    progress: ProgressBar,
}

struct Line {
    number: u64,
    animal: Result<NewPet, String>,
}

impl Lines {
    fn new(file: File, progress: ProgressBar) -> Self {
        Self { reader: BufReader::with_capacity(1 << 18, file), number: 0, progress }
    }

    fn next_line(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = Vec::with_capacity(128);
        loop {
            bytes.clear();
            if self.reader.by_ref().take(LONGEST_LINE + 2).read_until(b'\n', &mut bytes)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.progress.inc(bytes.len() as u64);
            let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let line = line.strip_prefix(formats::BYTE_ORDER_MARK).filter(|_| self.number == 1).unwrap_or(line);
            let animal = if line.len() as u64 > LONGEST_LINE {
                if !bytes.ends_with(b"\n") {
                    let skipped = self.reader.skip_until(b'\n')?;
                    self.progress.inc(skipped as u64);
                }
                Err("The line is longer than 64 KiB.".to_owned())
            } else {
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                let text = std::str::from_utf8(line).map_err(|_| "The line is not UTF-8.".to_owned());
                text.and_then(|text| parse_new_pet(text).map_err(describe))
            };
            return Ok(Some(Line { number: self.number, animal }));
        }
    }
}

fn describe(invalid: InvalidObject) -> String {
    match invalid {
        InvalidObject::Empty | InvalidObject::NotAnObject => "The line is not a JSON object.".to_owned(),
        InvalidObject::NotJson(error) => {
            // The parser sees one line only, so its line number would mislead.
            format!("The line is not JSON: {}.", error.to_string().replace(" at line 1 column ", " at column "))
        }
        InvalidObject::Field(error) => error.message().to_owned(),
    }
}

impl Iterator for Lines {
    type Item = io::Result<Line>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_line().transpose()
    }
}

impl Export {
    fn run(self) -> Outcome {
        with_store(&self.common, Create::Never, async |store| {
            let progress = export::progress(store.count_pets().await?, &self.target);
            export::export(&self.target, &self.common.data_dir, "animal", &progress, async |out| {
                let mut line = Vec::with_capacity(128);
                let mut write = |pet: Pet<'_>| {
                    line.clear();
                    write_pet(&pet, &mut line);
                    line.push(b'\n');
                    progress.inc(1);
                    out.write_all(&line)
                };
                store.export_pets(&mut write).await
            })
            .await
        })
    }
}
