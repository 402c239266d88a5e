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

/// Writes a line of an export, without its line feed.
type WriteLine<'a> = &'a mut (dyn FnMut(&[u8]) -> io::Result<()> + Send);

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
    /// Exports with `export`, which returns the number of lines, and reports the number of `what`. Shows a progress bar for
    /// `count` lines, or only the number exported so far if `count` is `None`.
    pub async fn export(
        &self,
        data_dir: &Path,
        what: &str,
        count: Option<u64>,
        export: impl AsyncFnOnce(WriteLine<'_>) -> Exported,
    ) -> Outcome {
        let template = match count {
            Some(_) => "{msg} {wide_bar} {human_pos} of {human_len}{left}",
            None => "{msg} {human_pos}",
        };
        let progress = progress::bar(count.unwrap_or_default(), "exporting", template);
        if self.file().is_none() && io::stdout().is_terminal() {
            // The export itself goes to the terminal.
            progress.set_draw_target(ProgressDrawTarget::hidden());
        }
        match self.write(data_dir, progress, export).await? {
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
        progress: ProgressBar,
        export: impl AsyncFnOnce(WriteLine<'_>) -> Exported,
    ) -> Outcome<Exported> {
        let Some(path) = self.file() else { return Ok(lines(io::stdout(), progress, export).await) };
        let named = |error| named(path, &error);
        // Devices and pipes are written to, not replaced.
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            let file = File::options().write(true).open(path).map_err(named)?;
            return Ok(lines(file, progress, export).await);
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
        let exported = lines(partial.file(), progress, export).await;
        if interrupt::is_received() {
            return Err(format!("interrupted: nothing was written to {}", path.display()).into());
        }
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

/// Exports to `out`, until a signal.
async fn lines(
    out: impl Write + Send,
    progress: ProgressBar,
    export: impl AsyncFnOnce(WriteLine<'_>) -> Exported,
) -> Exported {
    let mut out = BufWriter::with_capacity(1 << 18, out);
    let mut write = |line: &[u8]| {
        if interrupt::is_received() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        progress.inc(1);
        out.write_all(line)?;
        out.write_all(b"\n")
    };
    let exported = export(&mut write).await?;
    out.flush()?;
    Ok(exported)
}
