//! Possible contents of a disk after a power loss, derived from its writes and syncs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sectors::{put, tear};
use testkit::Random;

use crate::trace::Call;

/// The history of the files in a folder.
///
/// After a power loss, every change before a completed sync is on the disk. Of the later writes to a file, any subset may
/// be there, and of each write any subset of its sectors. Of the later names in a folder, any first part may be there,
/// because file systems keep them in order.
pub struct Volume {
    root: PathBuf,
    folders: BTreeMap<PathBuf, Folder>,
    files: Vec<File>,
}

#[derive(Default)]
struct Folder {
    changes: Vec<Change>,
    syncs: Vec<Span>,
}

#[derive(Default)]
struct File {
    writes: Vec<Write>,
    syncs: Vec<Span>,
}

struct Change {
    path: PathBuf,
    what: Entry,
    span: Span,
}

#[derive(Clone, Copy)]
enum Entry {
    File(usize),
    Folder,
    Removed,
}

struct Write {
    what: Content,
    span: Span,
}

enum Content {
    Bytes(u64, Vec<u8>),
    Length(u64),
}

#[derive(Clone, Copy)]
struct Span {
    begun: usize,
    ended: usize,
}

impl Volume {
    /// Records the changes to `root`, which is empty at first.
    pub fn record(root: &Path, calls: Vec<Call>) -> Self {
        let mut volume = Self { root: root.to_owned(), folders: BTreeMap::new(), files: Vec::new() };
        volume.folders.insert(root.to_owned(), Folder::default());
        // The file of each name while the process runs.
        let mut names: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for call in calls {
            // SQLite does not use the index of the log after a power loss.
            let is_recorded = call.file.starts_with(root) && !call.file.to_string_lossy().ends_with("-shm");
            if is_recorded && call.result >= 0 {
                volume.apply(call, &mut names);
            }
        }
        volume
    }

    fn apply(&mut self, call: Call, names: &mut BTreeMap<PathBuf, usize>) {
        let span = Span { begun: call.begun, ended: call.ended.unwrap_or(usize::MAX) };
        let known = names.get(&call.file).copied();
        match call.name.as_str() {
            "openat" if call.arguments.contains("O_CREAT") && known.is_none() => {
                names.insert(call.file.clone(), self.files.len());
                self.change(call.file, Entry::File(self.files.len()), span);
                self.files.push(File::default());
            }
            "mkdir" => {
                self.folders.insert(call.file.clone(), Folder::default());
                self.change(call.file, Entry::Folder, span);
            }
            "unlink" => {
                names.remove(&call.file);
                self.change(call.file, Entry::Removed, span);
            }
            "fdatasync" | "fsync" if call.is_sync() => match known {
                Some(file) => self.files[file].syncs.push(span),
                None => self.folders.get_mut(&call.file).expect("a recorded folder").syncs.push(span),
            },
            "pwrite64" => {
                let what = Content::Bytes(call.last_number(), call.data);
                self.files[known.expect("a recorded file")].writes.push(Write { what, span });
            }
            "ftruncate" => {
                let what = Content::Length(call.last_number());
                self.files[known.expect("a recorded file")].writes.push(Write { what, span });
            }
            "write" | "writev" | "rename" => panic!("{} of {} is not supported", call.name, call.file.display()),
            _ => {}
        }
    }

    fn change(&mut self, path: PathBuf, what: Entry, span: Span) {
        let folder = self.folders.get_mut(path.parent().unwrap()).expect("a recorded folder");
        folder.changes.push(Change { path, what, span });
    }

    /// Writes a possible state after a power loss at time `at` to the folder `target`.
    pub fn image(&self, at: usize, random: &mut Random, target: &Path) {
        self.image_of(&self.root, at, random, target);
    }

    fn image_of(&self, folder: &Path, at: usize, random: &mut Random, target: &Path) {
        fs::create_dir_all(target).unwrap();
        let Folder { changes, syncs } = &self.folders[folder];
        let begun = changes.iter().take_while(|change| change.span.begun <= at).count();
        let safe = safe_before(syncs, at);
        let synced = changes[..begun].iter().rposition(|change| change.span.ended < safe).map_or(0, |last| last + 1);
        let kept = synced + random.below((begun - synced + 1) as u64) as usize;
        let mut names = BTreeMap::new();
        for change in &changes[..kept] {
            names.insert(&change.path, change.what);
        }
        for (path, what) in names {
            let target = target.join(path.file_name().unwrap());
            match what {
                Entry::File(file) => fs::write(target, self.files[file].content(at, random)).unwrap(),
                Entry::Folder => self.image_of(path, at, random, &target),
                Entry::Removed => {}
            }
        }
    }
}

impl File {
    fn content(&self, at: usize, random: &mut Random) -> Vec<u8> {
        let safe = safe_before(&self.syncs, at);
        // The share of the unsynced writes that reached the disk.
        let percent = random.below(101);
        let mut content = Vec::new();
        for write in self.writes.iter().take_while(|write| write.span.begun <= at) {
            let kept = write.span.ended < safe || random.below(100) < percent;
            match &write.what {
                Content::Bytes(offset, bytes) if kept => put(&mut content, *offset, bytes),
                Content::Bytes(offset, bytes) if random.below(2) == 0 => tear(&mut content, *offset, bytes, random),
                Content::Length(length) if kept => content.resize(*length as usize, 0),
                _ => {}
            }
        }
        content
    }
}

/// Returns the time before which every completed change is on the disk at time `at`.
fn safe_before(syncs: &[Span], at: usize) -> usize {
    syncs.iter().filter(|sync| sync.ended <= at).map(|sync| sync.begun).max().unwrap_or(0)
}
