//! A file of the simulated disk, with the changes that a power loss may undo.

use testkit::Random;
use verification::sectors::{put, tear};

#[derive(Debug)]
pub struct File {
    /// The content that processes read.
    content: Vec<u8>,
    /// The content that is certain to survive a power loss.
    synced: Vec<u8>,
    /// The changes since, oldest first.
    changes: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Bytes(u64, Vec<u8>),
    Length(u64),
}

impl File {
    /// A file whose content is on the disk.
    pub fn new(content: Vec<u8>) -> Self {
        Self { synced: content.clone(), content, changes: Vec::new() }
    }

    pub fn content(&self) -> &[u8] {
        &self.content
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        put(&mut self.content, offset, bytes);
        self.changes.push(Change::Bytes(offset, bytes.to_vec()));
    }

    pub fn truncate(&mut self, length: u64) {
        self.content.resize(length as usize, 0);
        self.changes.push(Change::Length(length));
    }

    pub fn sync(&mut self) {
        for change in self.changes.drain(..) {
            apply(&mut self.synced, &change);
        }
    }

    /// Fails a sync as kernels do: the changes count as written afterwards, and any of them may be missing on the disk.
    pub fn fail_sync(&mut self, random: &mut Random, reverts: bool) {
        self.tear(random);
        if reverts {
            self.content.clone_from(&self.synced);
        }
    }

    /// Keeps the synced content, and any part of the other changes.
    pub fn lose_power(&mut self, random: &mut Random) {
        self.tear(random);
        self.content.clone_from(&self.synced);
    }

    fn tear(&mut self, random: &mut Random) {
        // The share of the changes that reach the disk.
        let percent = random.below(101);
        for change in self.changes.drain(..) {
            match &change {
                _ if random.below(100) < percent => apply(&mut self.synced, &change),
                Change::Bytes(offset, bytes) if random.below(2) == 0 => {
                    tear(&mut self.synced, *offset, bytes, random);
                }
                _ => {}
            }
        }
    }
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Bytes(offset, bytes) => put(content, *offset, bytes),
        Change::Length(length) => content.resize(*length as usize, 0),
    }
}
