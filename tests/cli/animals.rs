//! `pets import` and `pets export`.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::process::{Command, Stdio};

use expect_test::expect;
use serde_json::Value;
use testkit::{Folder, PostgresServer, Process, pet_with_all_fields, petstore};

const REX: &str = r#"{"name":"Rex","categoryId":3,"status":"sold"}"#;

#[test]
fn export_can_be_imported() {
    let folder = Folder::new();
    folder.write(
        "animals",
        "{\"name\":\"ß🦊 \\\"\\\\ \u{2028}\",\"categoryId\":-9223372036854775808}\n\
         {\"name\":\" Ré\\u0301x \",\"categoryId\":9223372036854775807,\"status\":\"pending\",\"id\":77,\"color\":\"red\"}\r\n\
         \n\
         {\"name\":\"\u{10ffff}\",\"categoryId\":0,\"status\":\"sold\"}",
    );

    assert_eq!(folder.run("pets import animals").shown(), "exit 0\nimported 3 animals\n");
    let exported = folder.succeed("pets export");
    expect![[r#"
        {"id":1,"name":"ß🦊 \"\\  ","categoryId":-9223372036854775808,"status":"available"}
        {"id":2,"name":" Ré́x ","categoryId":9223372036854775807,"status":"pending"}
        {"id":3,"name":"􏿿","categoryId":0,"status":"sold"}
    "#]]
    .assert_eq(&exported);

    folder.write("exported", &exported);
    folder.succeed("pets import exported --data-dir second");
    assert_eq!(folder.succeed("pets export --data-dir second"), exported);
    folder.succeed("pets import exported");
    assert_eq!(folder.succeed("pets export").lines().count(), 6, "an import adds, with new ids");
}

#[test]
fn imports_keep_every_field_on_every_database() {
    let mut animal = pet_with_all_fields();
    let folder = Folder::new();
    folder.write("animals", animal.to_string());
    for database in [String::new(), format!("--database-url {}", PostgresServer::shared().database())] {
        folder.succeed(&format!("pets import animals {database}"));

        let exported: Value = serde_json::from_str(&folder.succeed(&format!("pets export {database}"))).unwrap();

        animal["id"] = 1.into();
        assert_eq!(exported, animal, "{database}");
    }
}

#[test]
fn export_writes_to_a_file_or_stdout() {
    let folder = Folder::new();
    folder.run_with("pets import -", REX);
    let line = "{\"id\":1,\"name\":\"Rex\",\"categoryId\":3,\"status\":\"sold\"}\n";

    assert_eq!(folder.run("pets export file").shown(), "exit 0\nexported 1 animal\n");

    assert_eq!(folder.read("file"), line);
    assert_eq!(folder.succeed("pets export"), line);
    assert_eq!(folder.succeed("pets export -"), line);
    assert_eq!(folder.succeed("pets export /dev/stdout"), line, "a device is not replaced");

    std::os::unix::fs::symlink("file", folder.path("link")).unwrap();
    folder.write("file", "something before");
    folder.succeed("pets export link --force");
    assert_eq!(folder.read("file"), line);
    assert!(folder.path("link").is_symlink(), "a link is not replaced");
    std::fs::create_dir(folder.path("folder")).unwrap();
    std::os::unix::fs::symlink("later", folder.path("folder/link")).unwrap();
    folder.succeed("pets export folder/link");
    assert_eq!(folder.read("folder/later"), line, "the target of a link may be new");

    let appended = File::options().append(true).open(folder.path("file")).unwrap();
    let ended = Process::start_with_stdout(&mut folder.command("pets export /dev/stdout"), appended.into()).end();
    assert_eq!((ended.code, folder.read("file")), (Some(0), line.repeat(2)), "stdout may be a file");
}

#[test]
fn export_replaces_a_file_only_with_force() {
    let folder = Folder::new();
    folder.run_with("pets import -", REX);
    folder.write("file", "mine");
    std::os::unix::fs::symlink("file", folder.path("link")).unwrap();

    for (line, name) in [("pets export file", "file"), ("pets export link", "link"), ("messages export file", "file")] {
        folder.fails(line, &format!("{name} already exists; use --force to replace it"));
        assert_eq!(folder.read("file"), "mine", "{line}");
    }
    folder.succeed("pets export file --force");
    assert_eq!(folder.read("file").lines().count(), 1);
    folder.succeed("messages export file --force");
    assert_eq!(folder.read("file"), "");

    // Devices and pipes are written to, not replaced.
    folder.succeed("pets export /dev/null");
    let line = format!("{} pets export >(cat >copy) && while [ ! -s copy ]; do sleep 0.01; done; cat copy", petstore());
    let piped = Process::start(folder.program("bash").args(["-c", &line])).end();
    assert_eq!((piped.code, piped.stdout.lines().count()), (Some(0), 1), "{piped:?}");
}

#[test]
fn file_that_cannot_be_read_or_written_is_named() {
    let folder = Folder::new();
    for (file, why) in [("animals", "No such file or directory (os error 2)"), (".", "Is a directory (os error 21)")] {
        folder.fails(&format!("pets import {file}"), &format!("{file}: {why}"));
    }
    assert!(!folder.path("petstore-data").exists());
    folder.succeed("migrate");
    std::fs::create_dir(folder.path("folder")).unwrap();

    folder.fails("pets export nowhere/file", "nowhere/file: No such file or directory (os error 2)");
    folder.fails("pets export folder", "folder: Is a directory (os error 21)");
    assert_eq!((folder.names("folder"), folder.names(".").len()), (vec![], 2));

    folder.run_with("pets import -", REX);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ended = Process::start_with_stdout(&mut folder.command("pets export"), full.into()).end();
    assert_eq!(ended.shown(), "exit 1\nerror: No space left on device (os error 28)\n");
}

#[test]
fn import_is_all_or_nothing_and_names_bad_lines() {
    let folder = Folder::new();
    folder.succeed("migrate");
    let mut file = b"{\"name\":\"Rex\",\"categoryId\":3}\n\n".to_vec();
    for bad in [
        &b"{\"name\":\"Rex\""[..],
        b"[]",
        b"{\"categoryId\":3}",
        b"{\"name\":\"Rex\",\"categoryId\":\"3\"}",
        b"{\"name\":\"Rex\",\"categoryId\":3,\"status\":\"lost\"}",
        b"{\"name\":\" \",\"categoryId\":3}",
        b"{\"name\":\"Rex\",\"categoryId\":3} {}",
        b"{\"name\":\"\xff\",\"categoryId\":3}",
    ] {
        file.extend(bad);
        file.push(b'\n');
    }
    file.extend([b' '; 70_000]);
    file.extend(b"{\"name\":\"Rex\",\"categoryId\":3}\n{\"name\":\"Rex\",\"categoryId\":3}\nlast");
    folder.write("animals", &file);

    expect![[r#"
        exit 1
        warning: line 3: The line is not JSON: EOF while parsing an object at column 13.
        warning: line 4: The line is not a JSON object.
        warning: line 5: The field `name` is required.
        warning: line 6: `categoryId` must be an integer, not a string.
        warning: line 7: `status` must be one of available, pending, sold.
        warning: line 8: `name` is only white space; some other character is needed.
        warning: line 9: The line is not JSON: trailing characters at column 31.
        warning: line 10: The line is not UTF-8.
        warning: line 11: The line is longer than 64 KiB.
        warning: line 13: The line is not JSON: expected value at column 1.
        warning: each line must be one JSON object: see `petstore pets import --help`
        error: nothing was imported: 10 invalid lines; use --keep-going to skip them
    "#]]
    .assert_eq(&folder.run("pets import animals").shown());
    assert_eq!(folder.succeed("pets export"), "");
}

#[test]
fn byte_order_mark_and_lists_are_skipped() {
    let folder = Folder::new();
    // An unknown field that looks like CSV.
    let with_list = r#"{"tags":["good","name","x"],"name":"Rex","categoryId":1}"#;
    folder.write("animals", format!("\u{feff}{REX}\n{with_list}\n"));
    assert_eq!(folder.run("pets import animals").shown(), "exit 0\nimported 2 animals\n");

    folder.write("animals", format!("{REX}\n\u{feff}{REX}\n"));
    assert_eq!(folder.run("pets import animals").code, Some(1), "skipped on the first line only");
}

#[test]
fn line_may_have_64_kib_with_any_ending() {
    let folder = Folder::new();
    let line = |length: usize| format!("{REX}{}", " ".repeat(length - REX.len()));
    let longest = line(64 * 1024);
    folder.write("animals", format!("\u{feff}{longest}\r\n{longest}\n{longest}"));
    assert_eq!(folder.run("pets import animals").shown(), "exit 0\nimported 3 animals\n");

    let longer = line(64 * 1024 + 1);
    folder.write("animals", format!("{longer}\n{longer}\r\n{REX}\n{longer}"));
    let ended = folder.run("pets import animals --keep-going");
    let skipped = ended.stderr.matches("The line is longer than 64 KiB.").count();
    assert_eq!((ended.code, skipped), (Some(0), 3), "{ended:?}");
    assert_eq!(folder.succeed("pets export").lines().count(), 4);
}

#[test]
fn bad_lines_after_twenty_are_only_counted() {
    let folder = Folder::new();
    folder.write("animals", "bad\n".repeat(1_000));

    let log = folder.run("pets import animals").stderr;

    assert_eq!(log.lines().take(20).filter(|line| line.starts_with("warning: line ")).count(), 20, "{log}");
    expect![[r#"
        warning: further invalid lines are not shown
        warning: each line must be one JSON object: see `petstore pets import --help`
        error: nothing was imported: 1,000 invalid lines; use --keep-going to skip them"#]]
    .assert_eq(&log.lines().skip(20).collect::<Vec<_>>().join("\n"));
}

#[test]
fn import_reads_stdin_and_pipes() {
    let folder = Folder::new();

    let typed = folder.run_with("pets import -", format!("{REX}\n{REX}\n")).shown();
    assert_eq!(typed, "exit 0\nimported 2 animals\n");
    assert_eq!(folder.run_with("pets import -", format!("{REX}\nbad")).code, Some(1));
    let from_pipe = format!("printf '%s' '{REX}' | {} pets import /dev/stdin", petstore());
    let ended = Process::start(folder.program("sh").args(["-c", &from_pipe])).end();

    assert_eq!(ended.stderr, "imported 1 animal\n");
    assert_eq!(folder.succeed("pets export").lines().count(), 3);
}

#[test]
fn export_to_a_closed_pipe_succeeds() {
    let folder = Folder::new();
    folder.run_with("pets import -", format!("{REX}\n").repeat(20_000));

    // The export exceeds the capacity of a pipe.
    let mut export = folder.command("pets export").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    export.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
    let ended = export.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap().as_str()), (Some(0), ""));
}

#[test]
fn progress_bar_appears_on_a_terminal() {
    let folder = Folder::new();
    folder.write("animals", format!("{REX}\n").repeat(20_000) + "bad\n");

    let imported = "imported 20,000 animals, skipped 1 invalid line\r\n";
    for (line, wanted) in [
        ("pets import animals --keep-going", &["checking █", "importing █", " KiB of ", "line 20001: ", imported][..]),
        ("pets export file", &["exporting █", " of 20,000", "exported 20,000 animals\r\n"]),
    ] {
        let shown = on_terminal(&folder, line);
        assert!(wanted.iter().all(|wanted| shown.contains(wanted)), "{shown}");
    }
    let list = on_terminal(&folder, "pets export -");
    assert!(!list.contains("exporting"), "animals and a progress bar would mix");
}

#[test]
fn no_color_turns_the_colours_of_the_log_off() {
    let folder = Folder::new();
    let failed = on_terminal(&folder, "pets import animals");
    assert_eq!(failed, "error: animals: No such file or directory (os error 2)\r\n", "other commands have none");
    let fails = "serve --deployment staging --listen 0.0.0.0:0 --messages-listen 127.0.0.1:0 --ops-listen 192.0.2.1:1";
    for (no_color, terminal, is_coloured) in
        [("", "xterm", true), ("1", "xterm", false), ("", "dumb", false), ("", "", false)]
    {
        let mut command = script(&folder, fails);
        let shown = Process::start(command.env("NO_COLOR", no_color).env("TERM", terminal)).end().stdout;
        assert!(shown.contains("WARN") && shown.contains('\u{1b}') == is_coloured, "{shown}");
    }
    folder.write("animals", format!("{REX}\n").repeat(500));
    let shown = Process::start(script(&folder, "pets import animals").env("TERM", "dumb")).end().stdout;
    assert!(shown.contains("imported") && !shown.contains('\u{1b}'), "{shown}");
}

/// The output of a command on a terminal.
fn on_terminal(folder: &Folder, line: &str) -> String {
    Process::start(&mut script(folder, line)).end().stdout
}

fn script(folder: &Folder, line: &str) -> Command {
    let mut script = folder.program("script");
    script.args(["--quiet", "--command", &format!("{} {line}", petstore()), "/dev/null"]).env("TERM", "xterm");
    script
}

#[test]
fn memory_does_not_depend_on_the_number_of_animals() {
    // An export takes 62 MiB, with its page cache.
    const MOST: u64 = 80 << 20;
    let folder = Folder::new();
    let mut file = BufWriter::new(File::create(folder.path("animals")).unwrap());
    let name = "🦊".repeat(248);
    for number in 1..=85_000 {
        writeln!(file, r#"{{"id":{number},"name":"{name}{number:07}","categoryId":3,"status":"sold"}}"#).unwrap();
    }
    file.into_inner().unwrap();
    assert!(folder.path("animals").metadata().unwrap().len() > MOST, "the file exceeds the bound");

    for (line, done) in [("pets import animals", "imported"), ("pets export exported", "exported")] {
        let ended = folder.run(line);
        assert_eq!(ended.stderr, format!("{done} 85,000 animals\n"));
        assert!(ended.peak < MOST, "`{line}` took {} MiB", ended.peak >> 20);
    }

    let same = Process::start(folder.program("cmp").args(["animals", "exported"])).end();
    assert_eq!((same.code, same.stdout.as_str()), (Some(0), ""));
}
