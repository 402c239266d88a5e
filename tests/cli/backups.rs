//! `backup`, `restore`, and backups on a schedule.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;
use std::time::Duration;

use expect_test::expect;
use testkit::{Database, Folder, Process, Signal, TIMEOUT, petstore, within};

const WOULD_REPLACE_STAGING: &str = "the backup is of a production database and would replace a staging one; nothing was \
    replaced. If that is what you want, add --deployment production";

/// A folder with an account, two keys (one revoked), and animals.
fn filled(animals: usize) -> (Folder, String) {
    let (folder, key) = Folder::with_key();
    folder.key();
    folder.succeed("key revoke 2");
    folder.import((0..animals).map(|n| format!("{{\"name\":\"ß🦊{n}\",\"categoryId\":{n}}}\n")));
    (folder, key)
}

#[test]
fn backup_of_a_running_service_restores_everything() {
    let (folder, key) = filled(100);
    let server = folder.serve("serve");
    assert_eq!(server.send_message(&key, r"Hello\n🦊").status(), 202);
    within(TIMEOUT, "storing the last use", || folder.json("key list")[0]["lastUsedAt"].is_string());
    // More than one step of the copy.
    let sessions = "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted LIMIT 100000)
                    INSERT INTO sessions SELECT CAST(format('%032d', n) AS BLOB), 1, 1, 1 FROM counted";
    folder.database().sql(sessions);

    let made = folder.run("backup there.db");

    assert_eq!((made.code, made.stdout.as_str()), (Some(0), ""), "{made:?}");
    assert!(made.stderr.starts_with("backed up ") && made.stderr.ends_with(" MiB to there.db\n"), "{made:?}");
    assert_eq!(fs::metadata(folder.path("there.db")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(folder.names("."), ["animals.ndjson", "petstore-data", "there.db"], "the backup is one file");
    let animals = folder.succeed("pets export");
    let keys = folder.succeed("key list --json");

    // Later writes are not in the backup.
    assert_eq!(server.create_pet(&key, "Late").json()["id"], 101);
    server.end_by(Signal::TERM);
    let restored = folder.run("restore there.db --data-dir new/one").shown();
    assert!(restored.contains(" MiB, a production database, to new/one"), "{restored}");
    assert_eq!(folder.succeed("pets export --data-dir new/one"), animals);
    assert_eq!(folder.succeed("key list --json --data-dir new/one"), keys);

    let server = folder.serve("serve --data-dir new/one");
    assert_eq!(server.create_pet(&key, "Rex").json()["id"], 101, "ids continue after those of the backup");
    server.end_by(Signal::TERM);
    let restored = Database::folder(&folder.path("new/one"));
    assert_eq!(restored.sql("SELECT message FROM messages"), "Hello\n🦊");
    assert_eq!(restored.sql("SELECT count(*) FROM sessions"), "0", "all sessions have ended");
    let id = "SELECT value FROM meta WHERE key = 'store_id'";
    assert_eq!(restored.sql(id), folder.database().sql(id));
}

#[test]
fn backup_overwrites_only_with_force() {
    let (folder, _) = filled(3);
    folder.write("there.db", "mine");
    folder.fails("backup there.db", "there.db already exists; use --force to replace it");
    assert_eq!(folder.read("there.db"), "mine");
    folder.succeed("backup there.db --force");

    folder.succeed("account create grace@example.com");
    folder.fails("restore there.db", "there is a database in petstore-data; use --force to replace it");
    folder.succeed("key create --account grace@example.com --name test");
    folder.succeed("restore there.db --force");
    assert_eq!(folder.json("key list").len(), 2);
    assert_eq!(folder.run("key create --account grace@example.com --name test").code, Some(1));

    // Only regular files are replaced. `verification/tests/promises/mistakes.rs` names the database's own.
    std::os::unix::fs::symlink("there.db", folder.path("link")).unwrap();
    assert!(folder.program("mkfifo").arg("pipe").status().unwrap().success());
    for other in ["link", "pipe"] {
        folder.fails(&format!("backup {other} --force"), &format!("{other} is not a regular file"));
        folder.fails(&format!("backup {other}"), &format!("{other} is not a regular file"));
        assert!(!folder.path(other).symlink_metadata().unwrap().is_file());
    }
    folder.fails("backup nowhere/there.db", "nowhere/there.db: No such file or directory (os error 2)");
    let shown = folder.run("backup new.db --data-dir nowhere").shown();
    assert!(shown.starts_with("exit 1\nerror: there is no database in nowhere"), "{shown}");
    assert_eq!(folder.names("."), ["animals.ndjson", "link", "petstore-data", "pipe", "there.db"]);
}

#[test]
fn database_in_use_is_not_replaced() {
    let (folder, _) = filled(3);
    folder.succeed("backup there.db");
    let why = "the database in petstore-data is in use: stop the service and every other program that has it open";

    let server = folder.serve("serve");
    folder.fails("restore there.db --force", why);
    server.end_by(Signal::TERM);

    // Another program, which does not use our locks.
    let conn = rusqlite::Connection::open(folder.path("petstore-data/petstore.db")).unwrap();
    conn.query_row("SELECT count(*) FROM pets", [], |_| Ok(())).unwrap();
    folder.fails("restore there.db --force", why);
    drop(conn);
    folder.succeed("restore there.db --force");
    assert_eq!(folder.names("petstore-data"), ["petstore.db", "petstore.lock"]);
}

#[test]
fn incomplete_backup_is_not_restored() {
    let (folder, _) = filled(2_000);
    folder.succeed("backup good.db");
    let before = folder.succeed("pets export");
    let good = fs::read(folder.path("good.db")).unwrap();
    folder.write("half.db", &good[..good.len() / 2]);
    let mut torn = good.clone();
    // Tables and indexes begin at the third page.
    torn[8_192..].chunks_mut(4_096).for_each(|page| page[8..2_000].fill(7));
    folder.write("torn.db", &torn);
    folder.write("text.db", "This is no database. ".repeat(1_000));
    folder.write("empty.db", "");
    rusqlite::Connection::open(folder.path("other.db")).unwrap().execute_batch("CREATE TABLE pets (id)").unwrap();
    for file in ["half.db", "torn.db", "text.db", "empty.db", "other.db", "missing.db"] {
        let refused = folder.run(&format!("restore {file} --force")).shown();
        assert!(refused.starts_with(&format!("exit 1\nerror: {file}: ")), "{refused}");
        assert_eq!(folder.succeed("pets export"), before, "{file}");
    }
    let files = ["petstore.db", "petstore.db-shm", "petstore.db-wal", "petstore.lock"];
    assert_eq!(folder.names("petstore-data"), files, "nothing is left behind");
}

#[test]
fn other_deployment_and_newer_schema_are_rejected() {
    let (folder, _) = filled(3);
    folder.succeed("backup good.db");
    let why = "good.db: the database is a production one and cannot be opened as staging";
    folder.fails("restore good.db --data-dir new --deployment staging", why);
    assert_eq!(folder.run("backup other.db --deployment staging").code, Some(1));
    folder.succeed("account create eve@example.com --data-dir other --deployment staging");
    // The log that a killed service leaves is written back.
    let mut killed = folder.serve("serve --data-dir other");
    within(TIMEOUT, "a record of the log", || folder.read("other/petstore.lock").contains("log known"));
    killed.kill();
    folder.fails("restore good.db --data-dir other --force", WOULD_REPLACE_STAGING);
    assert!(folder.succeed("account list --data-dir other").contains("eve@example.com"));
    folder.succeed("restore good.db --data-dir other --force --deployment production");

    let newer = rusqlite::Connection::open(folder.path("good.db")).unwrap();
    newer.execute("INSERT INTO schema_history (version, name) VALUES (9999, 'later')", []).unwrap();
    let refused = folder.run("restore good.db --data-dir new").shown();
    let why = "exit 1\nerror: good.db: the database is at schema version 9999 and this program knows up to";
    assert!(refused.starts_with(why), "{refused}");
    assert!(!folder.path("new/petstore.db").exists());
}

#[test]
fn damaged_database_of_unreadable_deployment_is_replaced() {
    let (folder, _) = filled(3);
    folder.succeed("backup good.db");
    folder.succeed("account create eve@example.com --data-dir other --deployment staging");
    let damage = |table: &str| {
        let mut content = fs::read(folder.path("other/petstore.db")).unwrap();
        folder.write("copy.db", &content);
        let copy = rusqlite::Connection::open(folder.path("copy.db")).unwrap();
        let find = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
        let end = 4_096 * copy.query_row(find, [table], |row| row.get::<_, u32>(0)).unwrap() as usize;
        content[end - 4_096..end].fill(7);
        folder.write("other/petstore.db", &content);
    };
    damage("accounts");
    folder.fails("restore good.db --data-dir other --force", WOULD_REPLACE_STAGING);
    assert!(folder.run("account list --data-dir other").shown().contains("malformed"));
    damage("meta");
    folder.succeed("restore good.db --data-dir other --force");
    assert_eq!(folder.succeed("account list --data-dir other"), folder.succeed("account list"));
}

#[test]
fn nothing_is_restored_beside_a_log_that_remains() {
    let (folder, _) = filled(3);
    folder.succeed("backup good.db");
    folder.write("petstore-data/petstore.db", "");
    fs::remove_file(folder.path("petstore-data/petstore.db-wal")).unwrap();
    fs::create_dir(folder.path("petstore-data/petstore.db-wal")).unwrap();

    let refused = folder.run("restore good.db --force").shown();

    assert!(refused.starts_with("exit 1\nerror: cannot remove petstore-data/petstore.db-wal: "), "{refused}");
    assert_eq!(folder.read("petstore-data/petstore.db"), "");
}

#[test]
fn only_regular_files_are_removed() {
    let (folder, _) = filled(3);
    let names = [".petstore-pipe.partial", ".petstore-link.partial", ".petstore-folder.partial"];
    assert!(folder.program("mkfifo").arg(names[0]).status().unwrap().success());
    std::os::unix::fs::symlink("animals.ndjson", folder.path(names[1])).unwrap();
    fs::create_dir(folder.path(names[2])).unwrap();
    // Opening the pipe would block for ever, because nothing reads it.
    folder.succeed("backup there.db");
    for name in names {
        assert!(folder.path(name).symlink_metadata().is_ok(), "{name}");
    }
}

#[test]
fn backup_refers_to_the_tools_of_postgresql() {
    let folder = Folder::new();
    let text = "petstore backs up only the embedded database; for PostgreSQL, see docs/backup.md";
    for command in ["backup there.db", "restore there.db"] {
        folder.fails(&format!("{command} --database-url postgres://db/shop"), text);
    }
    let text = format!("remove backup-every: {text}");
    folder.fails_to_serve("serve --backup-every 1h --database-url postgres://db/shop", &text);
    folder.fails("config check --backup-every 1h --database-url postgres://db/shop", &text);
}

#[test]
fn backup_to_stdout_is_verified_and_leaves_nothing() {
    let (folder, _) = filled(100);
    let before = folder.names("petstore-data");
    let backup = folder.command("backup -").output().unwrap();
    assert!(backup.status.success(), "{backup:?}");
    assert_eq!(folder.names("petstore-data"), before);
    folder.write("there.db", backup.stdout);
    folder.succeed("restore there.db --data-dir new");
    assert_eq!(folder.succeed("pets export --data-dir new"), folder.succeed("pets export"));

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let closed = folder.command("backup -").stdout(writer).output().unwrap();
    assert_eq!(closed.status.code(), Some(1), "a backup that nobody reads is no success: {closed:?}");
    assert_eq!(folder.names("petstore-data"), before);
}

#[test]
fn killed_backup_to_stdout_leaves_nothing() {
    let (folder, _) = filled(10_000);
    let is_unfinished = || folder.names("petstore-data").iter().any(|name| name.ends_with(".partial"));
    within(TIMEOUT, "killing one that is unfinished", || {
        let mut backup = Process::start_with_stdout(&mut folder.command("backup -"), Stdio::null());
        while !backup.has_ended() {
            if is_unfinished() {
                backup.kill();
            }
        }
        is_unfinished()
    });
    folder.succeed("key list");
    assert!(!is_unfinished());
}

#[test]
fn scheduled_backups_replace_the_oldest() {
    let (folder, _) = filled(3);
    fs::create_dir(folder.path("kept")).unwrap();
    for name in ["petstore-20200101T000000Z.db", "petstore-20200102T000000Z.db", "mine-20200101T000000Z.db"] {
        folder.write(&format!("kept/{name}"), "old");
    }
    let server = folder.serve("serve --backup-every 1s --backup-keep 2 --backup-dir kept");
    let ours = || folder.names("kept").into_iter().filter(|name| name.starts_with("petstore-2")).collect::<Vec<_>>();
    within(2 * TIMEOUT, "two backups", || ours().len() == 2 && !ours()[0].starts_with("petstore-2020"));
    let first = ours();
    within(2 * TIMEOUT, "a third one", || ours().len() == 2 && ours()[0] > first[0]);
    let line = server.logged("backed up");
    assert!(line["bytes"].as_u64().unwrap() > 4_096 && line["file"].as_str().unwrap().contains("kept/petstore-2"));
    assert_eq!(server.metric("petstore_backup_interval_seconds"), 1.0);
    assert!(server.metric("petstore_backup_last_size_bytes") > 4_096.0);
    let stopped = server.end_by(Signal::TERM);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");

    assert!(folder.names("kept").contains(&"mine-20200101T000000Z.db".to_owned()), "other files are kept");
    assert_eq!(folder.names("kept").len(), 3);
    folder.succeed(&format!("restore kept/{} --data-dir new", ours()[1]));
    assert_eq!(folder.succeed("pets export --data-dir new"), folder.succeed("pets export"));
}

#[test]
fn failed_backup_is_logged_retried_and_removes_none() {
    let (folder, _) = filled(3);
    folder.write("kept", "in the way");
    let server = folder.serve("serve --backup-every 1s --backup-keep 1 --backup-dir kept");
    let line = server.logged("backup failed");
    assert!(line["level"] == "ERROR" && line["error"].as_str().unwrap().contains("kept"), "{line}");
    fs::remove_file(folder.path("kept")).unwrap();
    server.logged("backed up");
    within(TIMEOUT, "one file", || folder.names("kept").iter().filter(|name| name.ends_with(".db")).count() == 1);
    server.end_by(Signal::TERM);

    // The next process does not back up at once, because its schedule includes the last backup.
    let kept = folder.names("kept");
    let server = folder.serve("serve --backup-every 1h --backup-dir kept");
    std::thread::sleep(Duration::from_millis(500));
    server.end_by(Signal::TERM);
    assert_eq!(folder.names("kept"), kept);

    // A backup of a time when the clock was ahead is not the last one.
    fs::create_dir(folder.path("ahead")).unwrap();
    folder.write("ahead/petstore-20991231T000000Z.db", "");
    let server = folder.serve("serve --backup-every 1h --backup-dir ahead");
    server.logged("backed up");
    assert!(server.metric("petstore_backup_last_size_bytes") > 4_096.0);
    server.end_by(Signal::TERM);
}

#[test]
fn target_that_cannot_hold_the_backup_is_named() {
    let (folder, _) = filled(1_000);
    for (command, to) in [
        ("backup there.db", "cannot copy petstore-data to there.db"),
        ("restore whole.db --data-dir new", "whole.db: cannot copy it to new"),
    ] {
        folder.succeed("backup whole.db --force");
        let mut limited = folder.program("sh");
        limited.args(["-c", "ulimit -f 200; exec \"$0\" \"$@\"", petstore()]).args(command.split(' '));
        let why = Process::start(&mut limited).end().shown();
        assert!(why.starts_with("exit 1\nerror: ") && why.contains(to), "{why}");
    }
}

/// Some network file systems reject the sync of a folder.
#[test]
fn backup_succeeds_where_folders_cannot_be_synced() {
    let (folder, _) = filled(1);
    fs::create_dir(folder.path("share")).unwrap();
    let share = folder.path("share").canonicalize().unwrap();
    for (error, code) in [("EINVAL", 0), ("EIO", 1)] {
        let mut failing = folder.program("strace");
        failing.args(["-fqqo", "trace", "-P"]).arg(&share).args(["-e", &format!("inject=fsync:error={error}")]);
        failing.arg(petstore()).arg("backup").arg(share.join(error));
        let ended = Process::start(&mut failing).end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(folder.read("trace").contains(error), "the sync of the folder failed");
    }
}

#[test]
#[ignore = "only root can give files away"]
fn files_restored_by_root_belong_to_the_service() {
    let (folder, _) = filled(1);
    folder.succeed("backup there.db");
    fs::create_dir(folder.path("new")).unwrap();
    std::os::unix::fs::chown(folder.path("new"), Some(65_534), Some(65_534)).unwrap();
    folder.succeed("restore there.db --data-dir new");
    let names = folder.names("new");
    assert!(names.contains(&"petstore.db".to_owned()), "{names:?}");
    for name in names {
        let file = folder.path("new").join(&name).metadata().unwrap();
        assert_eq!((file.uid(), file.gid(), file.mode() & 0o777), (65_534, 65_534, 0o600), "{name}");
    }

    // The owner of the folder gets no file of others.
    fs::remove_file(folder.path("new/petstore.lock")).unwrap();
    folder.write("of-root", "");
    std::os::unix::fs::symlink("../of-root", folder.path("new/petstore.lock")).unwrap();
    folder.run("account list --data-dir new");
    assert_eq!(folder.path("of-root").metadata().unwrap().uid(), 0);
}

#[test]
#[ignore = "only root can give its rights away"]
fn file_or_folder_without_access_is_named() {
    let (folder, _) = filled(1);
    folder.succeed("backup there.db");
    fs::set_permissions(folder.path("there.db"), PermissionsExt::from_mode(0o000)).unwrap();
    fs::set_permissions(folder.path("petstore-data"), PermissionsExt::from_mode(0o500)).unwrap();
    let run = |line: &str| {
        let mut limited = folder.program("setpriv");
        limited.args(["--bounding-set=-dac_override,-dac_read_search", petstore()]).args(line.split(' '));
        Process::start(&mut limited).end().shown()
    };
    let shown = ["account list", "restore there.db --data-dir new"].map(run);
    expect![[r#"
        exit 1
        error: cannot open the database in petstore-data: petstore-data: Permission denied (os error 13)
        exit 1
        error: there.db: Permission denied (os error 13)
    "#]]
    .assert_eq(&shown.concat());
    // Such as a file that root has copied here.
    let log = "petstore-data/petstore.db-wal";
    fs::set_permissions(folder.path("petstore-data"), PermissionsExt::from_mode(0o700)).unwrap();
    fs::set_permissions(folder.path(log), PermissionsExt::from_mode(0o444)).unwrap();
    for line in ["serve", "config check", "account list"] {
        let shown = run(line);
        assert!(shown.contains(&format!("{log}: Permission denied (os error 13)")), "{line}: {shown}");
    }
}
