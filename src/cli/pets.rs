//! `petstore pets …`

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use tracing::Level;

use super::export::{self, Stopped};
use super::{Create, Failure, Outcome, formats, interrupt, tell, with_store};
use crate::config::Common;
use crate::domain::{NewPet, PetRef};
use crate::http::parse_new_pet;

/// A line may be as long as a request's body; longer ones are no animals, and are not held in memory.
const LONGEST_LINE: u64 = 64 * 1024;

const INTERRUPTED: &str = "interrupted: nothing was imported";

/// How many bad lines are reported one by one.
const REPORTED: u64 = 20;

#[derive(Subcommand, Debug)]
pub enum Pets {
    Import(Import),
    Export(Export),
}

/// Add animals from newline-delimited JSON, one to a line, as `POST /pets` takes them
///
/// The file is read twice: once to check every line, then to add them all in one transaction. An `id` is ignored,
/// so what was exported can be imported; the animals get new ids.
///
/// While the animals are added, a few seconds for a million, a running service's writes wait and get 503 after 5
/// seconds; with PostgreSQL, only new animals wait, in the last step, and get 503 after 1.4 seconds. Reads go on.
#[derive(Args, Debug)]
pub struct Import {
    /// The file, or - for stdin
    file: PathBuf,
    /// Leave bad lines out instead of importing nothing
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    common: Common,
}

/// Write all animals as newline-delimited JSON, one to a line, in order of their ids
///
/// Every animal that exists when the export begins appears exactly once, as it is when its page of 1,000 is read. Animals
/// added meanwhile may appear too. The export is not of one moment; `petstore backup` is. However slowly the output is read,
/// the service goes on.
#[derive(Args, Debug)]
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
        // Signals are caught only now, so that one can end the process while `open` waits for a pipe.
        interrupt::catch()?;
        formats::refuse_others(&mut file, &self.file)?;
        let bad = check(&file)?;
        if bad > 0 && !self.keep_going {
            return Err(Failure(format!(
                "nothing was imported: {}; --keep-going leaves bad lines out",
                counted(bad, "bad line")
            )));
        }
        file.rewind()?;
        let progress = Progress::bytes(&file, "importing");
        let keep_going = self.keep_going;
        let animals = Lines::new(file, progress.0.clone()).filter_map(move |line| match line {
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
        progress.0.finish_and_clear();
        let added = added?;
        let left_out = if bad > 0 { format!(", left out {}", counted(bad, "bad line")) } else { String::new() };
        tell(Level::INFO, &format!("imported {}{left_out}", counted(added, "animal")));
        Ok(())
    }
}

/// Reports the bad lines and returns how many there are.
fn check(file: &File) -> Result<u64, Failure> {
    let progress = Progress::bytes(file, "checking");
    let mut bad = 0;
    for line in Lines::new(file.try_clone()?, progress.0.clone()) {
        let line = line?;
        if interrupt::is_received() {
            progress.0.finish_and_clear();
            return Err(Failure(INTERRUPTED.into()));
        }
        if let Err(why) = line.animal {
            bad += 1;
            match bad {
                ..=REPORTED => progress.0.suspend(|| tell(Level::WARN, &format!("line {}: {why}", line.number))),
                _ if bad == REPORTED + 1 => {
                    progress.0.suspend(|| tell(Level::WARN, "more bad lines are only counted"));
                }
                _ => {}
            }
        }
    }
    progress.0.finish_and_clear();
    Ok(bad)
}

/// Opens what is to be imported. What can be read only once, as standard input or a pipe, is put aside first.
fn open(path: &Path) -> Result<File, Failure> {
    if path == Path::new("-") {
        return Ok(aside(&mut io::stdin().lock())?);
    }
    let opened = File::open(path).and_then(|mut file| match file.metadata()?.is_file() {
        true => Ok(file),
        false => aside(&mut file),
    });
    opened.map_err(|error| named(path, &error))
}

fn aside(source: &mut impl Read) -> io::Result<File> {
    let mut aside = tempfile::tempfile()?;
    io::copy(source, &mut aside)?;
    aside.rewind()?;
    Ok(aside)
}

pub fn named(path: &Path, error: &io::Error) -> Failure {
    Failure(format!("{}: {error}", path.display()))
}

pub fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", HumanCount(count), if count == 1 { "" } else { "s" })
}

/// The lines of a file that are not blank, each with the animal it holds or why it holds none.
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
                text.and_then(|text| parse_new_pet(text).map_err(|error| of_a_line(error.message())))
            };
            return Ok(Some(Line { number: self.number, animal }));
        }
    }
}

/// What the API says of a body, said of a line.
fn of_a_line(message: &str) -> String {
    match message.strip_prefix("The body") {
        Some(rest) => format!("The line{}", rest.replace(" at line 1 column ", " at column ")),
        None => message.to_owned(),
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
            export::export(&self.target, "animal", &progress, async |out| {
                let mut line = Vec::with_capacity(128);
                let mut write = |pet: PetRef<'_>| {
                    line.clear();
                    pet.write_json(&mut line);
                    line.push(b'\n');
                    progress.0.inc(1);
                    out.write_all(&line)
                };
                store.export_pets(&mut write).await?.map_err(Stopped::from)
            })
            .await
        })
    }
}

/// Delay before the remaining time is shown, because the first estimates are far off.
const STEADY: Duration = Duration::from_secs(3);

/// A progress bar, shown on a terminal only. `{left}` in its template is the remaining time.
pub struct Progress(pub ProgressBar);

impl Progress {
    fn bytes(file: &File, what: &'static str) -> Self {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        Self::new(length, what, "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}{left}")
    }

    pub fn new(length: u64, what: &'static str, template: &str) -> Self {
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        let style = style.with_key("left", |state: &ProgressState, to: &mut dyn fmt::Write| {
            // If writing fails, only the remaining time is missing.
            let _ = to.write_str(&remaining(state.elapsed(), state.eta()));
        });
        Self(ProgressBar::new(length).with_style(style).with_message(what))
    }
}

fn remaining(elapsed: Duration, eta: Duration) -> String {
    if elapsed < STEADY { String::new() } else { format!(", {:#} left", HumanDuration(eta)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_is_shown_after_some_seconds() {
        let eta = Duration::from_secs(20);
        assert_eq!(remaining(Duration::from_secs(2), eta), "");
        assert_eq!(remaining(Duration::from_secs(3), eta), ", 20s left");
    }
}
