//! Counts the rows that a power loss takes from a program of `bench/sqlite`: `power_loss IMAGES PROGRAM LIBRARY`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rusqlite::Connection;
use testkit::Random;
use verification::trace::{self, Call, Disk};
use verification::volume::Volume;

/// Rows that the program adds before it is killed, and images per run.
const ROWS: usize = 1_000;
const IMAGES: u32 = 20;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [images, program, library] = &arguments[..] else { panic!("give IMAGES PROGRAM LIBRARY") };
    let (images, mut random): (u32, _) = (images.parse().unwrap(), Random::from_seed());
    let (mut acknowledged, mut lost) = (0, 0);
    for begun in (0..images).step_by(IMAGES as usize) {
        let recording = Recording::new(program, library, Disk::Honest);
        for _ in begun..images.min(begun + IMAGES) {
            let (of_image, missing) = recording.lose_power(&mut random);
            acknowledged += of_image;
            lost += missing;
        }
    }
    let control = Recording::new(program, library, Disk::LyingFrom(1));
    let harmed = (0..IMAGES).filter(|_| control.lose_power(&mut random).1 > 0).count();
    println!(
        r#"{{"images": {images}, "acknowledged": {acknowledged}, "lost": {lost}, "harmed_without_syncs": {harmed}}}"#
    );
}

struct Recording {
    volume: Volume,
    /// Time and name of each acknowledgement.
    acknowledged: Vec<(usize, String)>,
    end: usize,
}

impl Recording {
    fn new(program: &str, library: &str, disk: Disk) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (root, file) = (folder.path().join("disk"), folder.path().join("trace"));
        fs::create_dir(&root).unwrap();
        let mut command = trace::recorder(&file, disk);
        let mut child = command.arg(program).arg(library).arg(&root).arg("8").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.by_ref().take(ROWS).map(Result::unwrap).count(), ROWS, "{library} ended");
        child.kill().unwrap();
        lines.for_each(drop);
        child.wait().unwrap();
        let calls = with_durable_folders(trace::read(&file, child.id()));
        let printed = calls.iter().filter(|call| call.name == "write" && call.data.ends_with(b"\n"));
        let acknowledged =
            printed.map(|call| (call.begun, String::from_utf8_lossy(call.data.trim_ascii()).into_owned()));
        let (acknowledged, end) = (acknowledged.collect(), calls.last().unwrap().begun);
        Self { volume: Volume::record(&root, calls), acknowledged, end }
    }

    /// Cuts the power at a random time. Returns the numbers of rows acknowledged before and missing afterwards.
    fn lose_power(&self, random: &mut Random) -> (usize, usize) {
        let at = random.below(self.end as u64 + 1) as usize;
        let image = tempfile::tempdir().unwrap();
        self.volume.image(at, random, image.path());
        let before = self.acknowledged.iter().filter(|(time, _)| *time <= at);
        let before: BTreeSet<_> = before.map(|(_, name)| name.clone()).collect();
        let there = database(image.path()).and_then(|file| names(&file).ok()).unwrap_or_default();
        (before.len(), before.difference(&there).count())
    }
}

/// Syncs the name of each created folder. A library that does not would lose all rows of its first day here, but not on ext4,
/// where the first sync in a folder makes the folder durable.
fn with_durable_folders(calls: Vec<Call>) -> Vec<Call> {
    let sync = |created: &Call| {
        let (file, at) = (created.file.parent()?.to_owned(), created.ended? + 1);
        let (name, arguments, data) = ("fsync".to_owned(), String::new(), Vec::new());
        Some(Call { name, file, data, arguments, begun: at, ended: Some(at), result: 0, injected: false })
    };
    let sync_after = |call: Call| {
        let synced = (call.name == "mkdir" && call.result == 0).then(|| sync(&call)).flatten();
        [Some(call), synced].into_iter().flatten()
    };
    calls.into_iter().flat_map(sync_after).collect()
}

/// Finds the database file in a folder or below it.
fn database(folder: &Path) -> Option<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().find_map(|path| match path.is_dir() {
        true => database(&path),
        false => (path.extension()? == "db").then_some(path),
    })
}

/// Returns the names that the database has. Fails if it is damaged.
fn names(file: &Path) -> rusqlite::Result<BTreeSet<String>> {
    let conn = Connection::open(file)?;
    conn.prepare("SELECT name FROM guests")?.query_map([], |row| row.get(0))?.collect()
}
