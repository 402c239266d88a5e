//! The names of the simulated disk's files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::Random;

/// The files by their names, and the changes of names that a power loss may undo.
#[derive(Debug)]
pub struct Names {
    /// Folder whose files stand for those of the disk, because the store looks at their names, identities and headers.
    folder: PathBuf,
    current: BTreeMap<String, usize>,
    synced: BTreeMap<String, usize>,
    /// The changes since, oldest first.
    changes: Vec<(String, Option<usize>)>,
}

impl Names {
    pub fn new(folder: &Path, names: BTreeMap<String, usize>) -> Self {
        Self { folder: folder.to_owned(), synced: names.clone(), current: names, changes: Vec::new() }
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.current.get(name).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, usize)> {
        self.current.iter().map(|(name, file)| (name, *file))
    }

    /// Gives a name to a file, or takes it away.
    pub fn set(&mut self, name: &str, file: Option<usize>) {
        match file {
            Some(_) => drop(fs::File::create(self.path(name)).unwrap()),
            None => fs::remove_file(self.path(name)).unwrap_or_default(),
        }
        set(&mut self.current, name.to_owned(), file);
        self.changes.push((name.to_owned(), file));
    }

    pub fn sync(&mut self) {
        self.synced = self.current.clone();
        self.changes.clear();
    }

    /// Keeps the synced names, and the first of the later changes, because file systems keep them in order.
    pub fn lose_power(&mut self, random: &mut Random) {
        let kept = random.below(self.changes.len() as u64 + 1) as usize;
        for (name, file) in self.changes.drain(..).take(kept) {
            set(&mut self.synced, name, file);
        }
        self.current = self.synced.clone();
    }

    /// Makes the folder's files agree with the names and contents of the disk's.
    pub fn show<'f>(&self, content: impl Fn(usize) -> &'f [u8]) {
        for entry in fs::read_dir(&self.folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            // The shared memory is a real file: see `vfs.rs`.
            if name.starts_with("petstore.db") && !name.ends_with("-shm") && !self.current.contains_key(&name) {
                fs::remove_file(self.path(&name)).unwrap();
            }
        }
        for (name, file) in &self.current {
            fs::write(self.path(name), content(*file)).unwrap();
        }
    }

    /// Returns the path of the file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn set(names: &mut BTreeMap<String, usize>, name: String, file: Option<usize>) {
    match file {
        Some(file) => names.insert(name, file),
        None => names.remove(&name),
    };
}
