//! `petstore ephemeral -- COMMAND`: what the command gets, and what becomes of it and the store.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use expect_test::expect;
use testkit::{Ended, Folder, Process, Signal, petstore};

use crate::ephemeral::{ephemeral, folder};

/// A store that runs a script.
fn script(folder: &Folder, script: &str) -> Command {
    let mut command = ephemeral(folder, "-- sh -c");
    command.arg(script);
    command
}

fn run(folder: &Folder, text: &str) -> Ended {
    Process::start(&mut script(folder, text)).end()
}

#[test]
fn command_gets_addresses_keys_and_stdin() {
    let folder = folder();
    let mut process = Process::start(
        script(
            &folder,
            r#"for key in "$STORE_API_KEY" "$STORE_CUSTOMER_API_KEY"; do
                curl -s "$STORE_URL/pets?limit=1" -H "Authorization: Bearer $key"; echo
                curl -s "$MESSAGES_URL/messages?limit=1" -H "Authorization: Bearer $key"; echo
            done; cat"#,
        )
        .stdin(Stdio::piped()),
    );
    process.input().write_all(b"the whole input").unwrap();
    drop(process.take_input());

    expect![[r#"
        exit 0
        [{"id":1,"name":"Rex","categoryId":1,"status":"available"}]
        []
        [{"id":1,"name":"Rex","categoryId":1,"status":"available"}]
        []
        the whole input"#]]
    .assert_eq(&process.end().shown());
    assert_eq!(folder.names("tmp"), [""; 0]);
}

#[test]
fn command_gets_what_the_line_has() {
    let folder = folder();
    let mut command = ephemeral(&folder, "--prefer flaky=code=503 -- sh -c");
    command.arg(
        r#"curl -s "$STORE_URL/pets" -H "Authorization: Bearer $STORE_API_KEY_FLAKY" -o out -w '%{http_code}\n'
        curl -so out --retry 60 "$OPS_URL/readyz" -w '%{http_code}\n'; curl -s "$CONSOLE_URL" -o out -w '%{http_code}\n'
        echo "$STORE_EMAIL ${#STORE_PASSWORD}"; ls "$STORE_DATA_DIR" | head -n 1"#,
    );
    expect![[r#"
        exit 0
        503
        200
        200
        staff@localhost 20
        petstore.db
    "#]]
    .assert_eq(&Process::start(&mut command).end().shown());
}

#[test]
fn requests_of_the_command_bypass_a_proxy() {
    let folder = folder();
    let shown = |variables: &[(&str, &str)]| {
        let mut command = script(&folder, r#"echo "$no_proxy $NO_PROXY""#);
        command.env_remove("no_proxy").env_remove("NO_PROXY").envs(variables.iter().copied());
        Process::start(&mut command).end().stdout
    };
    let loopback = "127.0.0.1,::1,localhost";
    assert_eq!(shown(&[]), format!("{loopback} {loopback}\n"));
    assert_eq!(shown(&[("NO_PROXY", "a.example")]), format!("a.example,{loopback} a.example,{loopback}\n"));
    assert_eq!(shown(&[("no_proxy", "*")]), "* *\n");
}

#[test]
fn pages_say_that_the_store_is_temporary() {
    let shown = run(&folder(), r#"curl -s "${STORE_URL%/v1}/" "${STORE_URL%/v1}/openapi.json""#).stdout;
    assert!(
        shown.contains("This store is temporary")
            && shown.contains("The animal is lost when this temporary store ends")
    );
    assert!(!shown.contains("on disk before its response") && !shown.contains("durable when the response"));
}

#[test]
fn ignored_signal_stays_ignored() {
    let folder = folder();
    // As nohup does.
    let mut command = Command::new("sh");
    command.current_dir(folder.path(".")).env("TMPDIR", folder.path("tmp"));
    command.args([
        "-c",
        "trap '' HUP; exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_petstore"),
        "ephemeral",
        "--empty",
        "--",
    ]);
    command.args(["sh", "-c", "kill -HUP $PPID; kill -HUP $$; curl -s -o /dev/null -w %{http_code} $STORE_URL/pets"]);
    assert_eq!(Process::start(&mut command).end().shown(), "exit 0\n401");
}

#[test]
fn exit_status_is_that_of_the_command() {
    let folder = folder();
    assert_eq!(run(&folder, "exit 7").shown(), "exit 7\n");
    assert_eq!(run(&folder, "kill -9 $$").shown(), "exit 137\n");
    assert_eq!(run(&folder, "kill -SEGV $$").shown(), "exit 139\n");
    folder.write("text", "");
    let failed = |arguments| Process::start(&mut ephemeral(&folder, arguments)).end().shown();
    assert_eq!(
        failed("-- ./missing"),
        "exit 127\nerror: cannot run ./missing: No such file or directory (os error 2)\n"
    );
    assert_eq!(failed("-- ./text"), "exit 126\nerror: cannot run ./text: Permission denied (os error 13)\n");
    assert_eq!(folder.names("tmp"), [""; 0]);
}

#[test]
fn signals_go_to_the_command_while_the_store_serves() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1] {
        let folder = folder();
        let process = Process::start(&mut script(
            &folder,
            "last() { curl -s -o out -w '%{http_code}' \"$STORE_URL/pets\" -H \"Authorization: Bearer $STORE_API_KEY\"; exit 3; }
             trap last TERM INT HUP QUIT USR1; echo started; while :; do sleep 0.02; done",
        ));
        assert_eq!(process.next_line().as_deref(), Some("started\n"));

        process.signal(signal);

        assert_eq!(process.end().shown(), "exit 3\n200", "{signal:?}");
        assert_eq!(folder.names("tmp"), [""; 0]);
    }
}

#[test]
fn interrupt_reaches_the_command_in_a_terminal_once() {
    let folder = folder();
    folder.write(
        "count.py",
        "import os, signal, sys, time
caught = []
signal.signal(signal.SIGINT, lambda *_: caught.append(1))
print('started', flush=True)
if sys.argv[2:]: os.kill(os.getppid(), signal.SIGINT)
end = time.monotonic() + 60
while time.monotonic() < end and len(caught) < int(sys.argv[1]): time.sleep(0.05)
# Long enough for another interrupt.
for _ in range(20): time.sleep(0.05)
print('caught', len(caught))
exit(5)
",
    );
    // The terminal interrupts only processes of its session, and another program only the store. Two interrupts at once could be
    // counted as one.
    for (command, keys, count) in [
        ("python3 count.py 1", "\x03", 1),
        ("setsid python3 count.py 0", "\x03", 0),
        ("python3 count.py 1 kill", "", 1),
    ] {
        let ended = typed_in_a_terminal(&folder, command, keys);

        assert!(ended.code == Some(5) && ended.stdout.ends_with(&format!("caught {count}\r\n")), "{ended:?}");
        assert_eq!(folder.names("tmp"), [""; 0]);
    }
}

/// Runs a store with `command` in a terminal of its own, and presses `keys` once the command prints `started`.
fn typed_in_a_terminal(folder: &Folder, command: &str, keys: &str) -> Ended {
    let mut terminal = folder.program("script");
    // Jobs in the background of a shell ignore the signal, and so would all that they start.
    let line = format!("exec env --default-signal=INT {} ephemeral -- {command}", petstore());
    terminal.args(["-qefc", &line, "/dev/null"]);
    let mut process = Process::start(terminal.stdin(Stdio::piped()).env("TMPDIR", folder.path("tmp")));
    let mut keyboard = process.take_input();
    while !process.next_line().expect("the command starts").contains("started") {}
    // `count.py 0` may have ended already.
    let _ = keyboard.write_all(keys.as_bytes());
    process.end()
}

/// The terminal interrupts both, and COMMAND often ends before this process has seen its own signal.
#[test]
fn interrupt_that_ends_the_command_is_no_second_one() {
    let folder = folder();
    for _ in 0..20 {
        let ended = typed_in_a_terminal(&folder, "sh -c 'echo started; exec sleep 60'", "\x03");

        assert_eq!((ended.code, &*ended.stdout), (Some(130), "^C"), "{ended:?}");
        assert_eq!(folder.names("tmp"), [""; 0]);
    }
}

#[test]
fn command_is_terminated_if_the_store_fails() {
    let folder = folder();
    let mut process = Process::start(&mut script(
        &folder,
        "trap 'echo terminated; exit 0' TERM; rm \"$TMPDIR\"/petstore-ephemeral-*/data/petstore.db; \
         while :; do sleep 0.02; done",
    ));
    assert_eq!(process.next_line().as_deref(), Some("terminated\n"));
    assert_eq!(process.ended(Duration::from_secs(30)).code(), Some(1));
    assert_eq!(folder.names("tmp"), [""; 0]);
}
