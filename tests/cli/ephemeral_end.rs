//! The end of `petstore ephemeral`: signals, hang-up, and the folders of killed processes.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use testkit::{Process, Random, Signal, TIMEOUT, eventually, within};

use crate::ephemeral::{Running, ephemeral, folder};

#[test]
fn folder_is_private_and_removed_at_every_signal() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::ALARM] {
        let folder = folder();
        let running = Running::start(&mut ephemeral(&folder, ""));
        let names = folder.names("tmp");
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(fs::metadata(folder.path("tmp").join(&names[0])).unwrap().permissions().mode() & 0o777, 0o700);

        running.process.signal(signal);

        running.leaves_nothing(&folder);
    }
}

#[test]
fn signal_during_the_start_leaves_nothing() {
    let mut random = Random::new(1);
    for attempt in 0..40 {
        // A shell may have started the test with SIGINT ignored, and petstore ignores it then until it catches signals.
        let (folder, signal) = (folder(), if attempt % 2 == 0 { Signal::TERM } else { Signal::ALARM });
        let arguments = if attempt % 4 < 2 { "" } else { "-- sleep 60" };
        let process = Process::start(&mut ephemeral(&folder, arguments));
        thread::sleep(Duration::from_micros(random.below(120_000)));

        process.signal(signal);
        let ended = process.end();

        // `None` until signals are caught, which is before there is a folder.
        let stopped = if arguments.is_empty() { Some(0) } else { Some(128 + signal.as_raw()) };
        assert!(ended.code.is_none() || ended.code == stopped, "{ended:?}");
        assert_eq!(folder.names("tmp"), [""; 0], "{ended:?}");
    }
}

#[test]
fn import_of_the_first_animals_ends_at_a_signal() {
    let folder = folder();
    folder.write("animals.ndjson", "{\"name\":\"Rex\",\"categoryId\":1}\n".repeat(100_000));
    let interrupted = eventually(TIMEOUT, "a signal before the last animal", || {
        let process = Process::start(&mut ephemeral(&folder, "--pets animals.ndjson"));
        within(TIMEOUT, "making the folder", || !folder.names("tmp").is_empty());
        process.signal(Signal::TERM);
        let ended = process.end();
        assert_eq!(folder.names("tmp"), [""; 0]);
        (ended.code != Some(0)).then_some(ended)
    });
    assert_eq!(interrupted.shown(), "exit 143\nerror: interrupted: nothing was imported\n");
}

#[test]
fn hang_up_of_a_pipe_or_socket_ends_the_store() {
    let folder = folder();
    let mut process = Process::start(ephemeral(&folder, "").stdin(Stdio::piped()));
    let mut parent = process.take_input();
    let running = Running::of(process);
    parent.write_all(b"not read").unwrap();
    assert!(running.is_serving());
    drop(parent);
    running.leaves_nothing(&folder);

    let (parent, stdin) = UnixStream::pair().unwrap();
    let running = Running::start(ephemeral(&folder, "").stdin(OwnedFd::from(stdin)));
    assert!(running.is_serving());
    drop(parent);
    running.leaves_nothing(&folder);
}

#[test]
fn stdin_other_than_an_open_pipe_does_not_end_the_store() {
    let folder = folder();
    folder.write("empty", "");
    let (hung_up, writer) = std::io::pipe().unwrap();
    drop(writer);
    let file = File::open(folder.path("empty")).unwrap();
    for stdin in [Stdio::null(), Stdio::from(file), Stdio::from(hung_up)] {
        let running = Running::start(ephemeral(&folder, "").stdin(stdin));
        thread::sleep(Duration::from_millis(100));
        assert!(running.is_serving());
        running.process.signal(Signal::TERM);
        running.leaves_nothing(&folder);
    }
    let mut closed = folder.program("/bin/sh");
    closed.args(["-c", "exec \"$0\" ephemeral <&-", testkit::petstore()]).env("TMPDIR", folder.path("tmp"));
    let running = Running::start(&mut closed);
    assert!(running.is_serving());
    running.process.signal(Signal::TERM);
    running.leaves_nothing(&folder);
}

#[test]
fn next_start_removes_only_abandoned_folders() {
    let folder = folder();
    let mut killed = Running::start(&mut ephemeral(&folder, ""));
    killed.process.kill();
    let abandoned = folder.names("tmp").remove(0);
    // Folders that must stay: a link to a marked one, one inside an abandoned one, one without a marker, and one in use.
    fs::create_dir(folder.path("elsewhere")).unwrap();
    folder.write("elsewhere/petstore-ephemeral", "");
    symlink(folder.path("elsewhere"), folder.path("tmp/petstore-ephemeral-link")).unwrap();
    symlink(folder.path("elsewhere"), folder.path("tmp").join(&abandoned).join("data/link")).unwrap();
    fs::create_dir(folder.path("tmp/petstore-ephemeral-plain")).unwrap();
    folder.write("tmp/petstore-ephemeral-plain/file", "");
    // The rest of one whose removal was interrupted.
    fs::create_dir(folder.path("tmp/petstore-ephemeral-rest")).unwrap();
    folder.write("tmp/petstore-ephemeral-rest/petstore-ephemeral", "");
    let in_use = Running::start(&mut ephemeral(&folder, ""));
    let kept = folder.names("tmp");
    assert!(!kept.contains(&abandoned) && kept.len() == 3, "{kept:?}");

    assert_eq!(Process::start(&mut ephemeral(&folder, "-- true")).end().shown(), "exit 0\n");

    assert_eq!(folder.names("tmp"), kept);
    assert_eq!(folder.names("elsewhere"), ["petstore-ephemeral"]);
    assert_eq!(folder.names("tmp/petstore-ephemeral-plain"), ["file"]);
    assert!(in_use.is_serving());
}
