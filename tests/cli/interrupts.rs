//! SIGINT, SIGTERM and SIGHUP while a command writes: no unfinished file is left, and the message says what was written.

use std::fs;
use testkit::postgres::{OpenTransaction, database, sessions};
use testkit::{Ended, Folder, Process, Signal, TIMEOUT, new_pet, petstore, within};

/// A folder with 50,000 animals, in the database and as a file, so that commands run long enough to be interrupted.
fn filled() -> Folder {
    let folder = Folder::new();
    folder.import((0..50_000).map(|n| format!("{{\"name\":\"Rex {n}\",\"categoryId\":{n}}}\n")));
    folder
}

/// Repeats the command until a signal hits it in the middle. `unfinished` returns true once the command has begun to
/// write; `undo` prepares the next run.
fn interrupted(folder: &Folder, line: &str, signal: Signal, unfinished: impl Fn() -> bool, undo: impl Fn()) -> Ended {
    for _ in 0..50 {
        // Under nohup, SIGHUP is ignored by all children.
        let mut command = folder.program("env");
        command.arg("--default-signal=HUP").arg(petstore()).args(line.split(' '));
        let running = Process::start(&mut command);
        if running.catches_sigint() {
            while !unfinished() && running.catches_sigint() {}
            running.signal(signal);
            if signal == Signal::HUP {
                running.signal(signal);
            }
        }
        let ended = running.end();
        if ended.code != Some(0) {
            return ended;
        }
        undo();
    }
    panic!("no signal hit `{line}` in the middle");
}

fn has_partial(folder: &Folder, path: &str) -> bool {
    folder.path(path).exists() && folder.names(path).iter().any(|name| name.ends_with(".partial"))
}

#[test]
fn interrupted_backup_leaves_no_file() {
    let folder = filled();
    let undo = || fs::remove_file(folder.path("there.db")).unwrap();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let ended = interrupted(&folder, "backup there.db", signal, || has_partial(&folder, "."), undo);
        assert_eq!(ended.shown(), format!("exit {code}\nerror: interrupted: nothing was written to there.db\n"));
        assert_eq!(folder.names("."), ["animals.ndjson", "petstore-data"]);
    }
}

#[test]
fn interrupted_restore_leaves_the_database_as_it_was() {
    let folder = filled();
    folder.succeed("backup there.db");
    let before = folder.succeed("pets export");
    let partial = || has_partial(&folder, "petstore-data");
    let ended = interrupted(&folder, "restore there.db --force", Signal::INT, partial, || ());
    assert_eq!(ended.shown(), "exit 130\nerror: interrupted: nothing was restored to petstore-data\n");
    assert!(!has_partial(&folder, "petstore-data"));
    assert!(folder.succeed("pets export") == before);
}

#[test]
fn interrupted_export_leaves_no_file() {
    let folder = filled();
    let undo = || fs::remove_file(folder.path("there.ndjson")).unwrap();
    let ended = interrupted(&folder, "pets export there.ndjson", Signal::INT, || has_partial(&folder, "."), undo);
    assert_eq!(ended.shown(), "exit 130\nerror: interrupted: nothing was written to there.ndjson\n");
    assert_eq!(folder.names("."), ["animals.ndjson", "petstore-data"]);
}

#[test]
fn interrupted_import_adds_nothing() {
    let folder = filled();
    folder.succeed("migrate --data-dir new");
    let undo = || {
        fs::remove_dir_all(folder.path("new")).unwrap();
        folder.succeed("migrate --data-dir new");
    };
    let checking = || true;
    let adding = || folder.path("new/petstore.db-wal").metadata().is_ok_and(|log| log.len() > 0);
    for unfinished in [&checking as &dyn Fn() -> bool, &adding] {
        let ended = interrupted(&folder, "pets import animals.ndjson --data-dir new", Signal::INT, unfinished, undo);
        assert_eq!(ended.shown(), "exit 130\nerror: interrupted: nothing was imported\n");
        assert_eq!(folder.succeed("pets export --data-dir new"), "");
    }
}

#[test]
fn second_signal_ends_a_command_that_waits() {
    let (folder, url) = (Folder::new(), database());
    folder.write("animals", new_pet("Rex"));
    folder.succeed(&format!("migrate --database-url {url}"));
    let _holder = OpenTransaction::begin(&url, "LOCK TABLE pets");
    let mut waiting = Process::start(&mut folder.command(&format!("pets import animals --database-url {url}")));
    within(TIMEOUT, "waiting for the table", || sessions(&url, "wait_event_type = 'Lock'") > 0);
    within(TIMEOUT, "ending", || {
        waiting.signal(Signal::INT);
        waiting.has_ended()
    });
    assert_eq!(waiting.end().code, Some(130));
}
