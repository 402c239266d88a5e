//! Exports of newline-delimited JSON to stdout or, atomically, to a file.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget};
use tracing::Level;

use crate::cli::terminal::interrupt;
use crate::cli::terminal::progress::{self, counted};
use crate::cli::{Outcome, tell};
use crate::store::sqlite::{self, AtomicFile, folder_of};
use crate::store::{ExportError, Exported};

/// Destination of an export.
#[derive(Args, Debug)]
pub struct Target {
    /// File to write atomically, or - for stdout [default: -]
    file: Option<PathBuf>,
    /// Replace an existing file; if FILE is a link, its target is replaced
    #[arg(long)]
    force: bool,
}

impl Target {
    /// Exports with `write`, which returns the number of items, and reports the number of `what`. Shows a progress bar for
    /// `count` items, or only the number exported so far if `count` is `None`.
    pub async fn export(
        &self,
        data_dir: &Path,
        what: &str,
        count: Option<u64>,
        write: impl AsyncFnOnce(&mut (dyn Write + Send), &ProgressBar) -> Exported,
    ) -> Outcome {
        let template = match count {
            Some(_) => "{msg} {wide_bar} {human_pos} of {human_len}{left}",
            None => "{msg} {human_pos}",
        };
        let progress = &progress::bar(count.unwrap_or_default(), "exporting", template);
        if self.file().is_none() && io::stdout().is_terminal() {
            // The export itself goes to the terminal.
            progress.set_draw_target(ProgressDrawTarget::hidden());
        }
        let exported = self.write(data_dir, async |out| write(out, progress).await).await?;
        progress.finish_and_clear();
        match exported {
            // The reader has closed the pipe, as in `petstore pets export | head`.
            Err(ExportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(error.into()),
            Ok(exported) => {
                tell(Level::INFO, &format!("exported {}", counted(exported, what)));
                Ok(())
            }
        }
    }

    /// Returns the file. `None` for stdout.
    fn file(&self) -> Option<&Path> {
        // The shell may have redirected these devices to a file, which must not be replaced.
        let is_stdout =
            |path: &Path| ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|out| path == Path::new(out));
        self.file.as_deref().filter(|path| !is_stdout(path))
    }

    async fn write(
        &self,
        data_dir: &Path,
        write: impl AsyncFnOnce(&mut (dyn Write + Send)) -> Exported,
    ) -> Outcome<Exported> {
        let Some(path) = self.file() else { return Ok(buffered(&mut io::stdout(), write).await) };
        let named = |error| named(path, &error);
        // Devices and pipes are written to, not replaced.
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            let mut file = File::options().write(true).open(path).map_err(named)?;
            return Ok(buffered(&mut file, write).await);
        }
        let exists = || format!("{} already exists; use --force to replace it", path.display());
        // `publish` detects a file that another process creates during the export.
        if !self.force && path.is_file() {
            return Err(exists().into());
        }
        // Replaces the target of a link, and keeps the link.
        let to = &sqlite::folder(data_dir).outside(path).map_err(named)?;
        interrupt::catch()?;
        let mut partial = AtomicFile::in_folder(folder_of(to), sqlite::NAME).map_err(named)?;
        let exported = buffered(&mut Interruptible(partial.file(), path), write).await;
        if exported.is_ok() {
            partial.publish(to, self.force).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => exists(),
                _ => named(error),
            })?;
        }
        Ok(exported)
    }
}

/// The error for a file that cannot be used.
pub fn named(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// A file whose writes fail after SIGINT or SIGTERM.
struct Interruptible<'a>(&'a mut File, &'a Path);

impl Write for Interruptible<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if interrupt::is_received() {
            return Err(io::Error::other(format!("interrupted: nothing was written to {}", self.1.display())));
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

async fn buffered(
    out: &mut (dyn Write + Send),
    write: impl AsyncFnOnce(&mut (dyn Write + Send)) -> Exported,
) -> Exported {
    let mut out = BufWriter::with_capacity(1 << 18, out);
    let exported = write(&mut out).await?;
    out.flush()?;
    Ok(exported)
}
