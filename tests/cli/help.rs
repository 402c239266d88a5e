//! `-h` and `--help` of every command.

use std::process::Command;

use expect_test::expect;
use testkit::Folder;

/// The command lines of all commands and groups, and of the program itself.
fn commands() -> Vec<String> {
    fn add(command: &clap::Command, line: &str, lines: &mut Vec<String>) {
        for subcommand in command.get_subcommands() {
            add(subcommand, &format!("{line} {}", subcommand.get_name()), lines);
        }
        lines.push(line.trim_start().to_owned());
    }
    let mut lines = Vec::new();
    add(&petstore::cli::command(), "", &mut lines);
    lines
}

#[test]
fn program_help_lists_the_commands() {
    expect![[r#"
        An animal store as an HTTP and JSON service

        Usage: petstore <COMMAND>

        Commands:
          quickstart   Create sample data and run the service
          serve        Run the service
          ephemeral    Run a staging store for one test run
          account      Create, list, suspend, export, delete and erase accounts, and set addresses,
                       passwords and roles
          key          Create, list, revoke and rotate API keys
          audit        List the changes of accounts, keys and orders, newest first
          pets         Import and export animals
          orders       List, approve, deliver and cancel orders
          messages     List, export, retry and discard messages
          migrate      Migrate the database to the current schema
          move         Copy the embedded database to an empty PostgreSQL database
          backup       Back up the embedded database to a file
          restore      Restore the embedded database from a backup
          reset        Give a staging store a first state
          openapi      Print the OpenAPI document
          config       Show the configuration
          completions  Print a shell completion script
          manual       Write the manual pages into a folder
          healthcheck  Check whether the service is ready
          help         Print this message or the help of the given subcommand(s)

        Options:
          -h, --help     Print help
          -V, --version  Print version

        The settings of the database and the log, such as --data-dir, are accepted before and after the
        command.
    "#]]
    .assert_eq(&Folder::new().succeed("-h"));
}

#[test]
fn command_help_lists_its_own_options_first() {
    expect![[r#"
        Create an API key and print it

        Usage: petstore key create [OPTIONS] --account <EMAIL> --name <NAME>

        Options:
              --account <EMAIL>        Account of the key
              --name <NAME>            Name of the key
              --expires-in <DURATION>  Lifetime of the key, for instance 90d [default: unlimited]
              --read-only              Let requests with the key only read: others get 403
              --prefer <PREFERENCES>   Failures that requests with the key get, as in the header `Prefer`,
                                       for instance 'code=503, rate=0.1'; only on staging
          -h, --help                   Print help (see more with '--help')

        Settings of the database and the log:
              --data-dir <DIR>               Folder of the embedded database; as a flag, it overrides a
                                             database-url from elsewhere [default: petstore-data]
              --database-url <URL>           PostgreSQL database to use instead:
                                             postgres://USER:PASSWORD@HOST:PORT/DATABASE; several HOST:PORT,
                                             separated by commas, are tried at once
              --require-standbys[=<BOOL>]    Reject reads and writes unless as many standbys are connected
                                             to PostgreSQL as its commits wait for, which bounds stale reads
                                             from an isolated primary [default: false] [possible values:
                                             true, false]
              --database-timeout <DURATION>  Longest time for an operation on PostgreSQL, 0.5s to 60s, after
                                             which requests get 503; the timeouts of its parts follow from
                                             it [default: 1.8s]
              --deployment <NAME>            Purpose of the database, set when it is created; an existing
                                             database must match [possible values: production, staging]
              --existing-only[=<BOOL>]       Fail without a database, as after a volume was not mounted;
                                             only `restore` and `move` create one [default: false] [possible
                                             values: true, false]
              --config <FILE>                Configuration file (TOML)
              --log-level <LEVEL>            Lowest level to log to stderr [default: info] [possible values:
                                             error, warn, info, debug, trace]
              --log-format <FORMAT>          Log format of `serve` and `quickstart`; auto is human on a
                                             terminal, otherwise json [default: auto] [possible values:
                                             auto, human, json]

        Each setting is also an environment variable and a key of the configuration file: --data-dir is
        PETSTORE_DATA_DIR and data-dir. Flags override environment variables, which override the file.
    "#]]
    .assert_eq(&Folder::new().succeed("key create -h"));
}

#[test]
fn every_command_has_help_that_fits_a_terminal() {
    let folder = Folder::new();
    let commands = commands();
    assert!(commands.len() >= 30, "{commands:?}");
    for command in commands {
        for flag in ["-h", "--help"] {
            let help = folder.run(&format!("{command} {flag}"));

            assert_eq!(help.code, Some(0), "{command}");
            assert_eq!(help.stderr, "", "{command}");
            assert!(help.stdout.contains(format!("Usage: petstore {command}").trim_end()), "{}", help.stdout);
            assert!(help.stdout.lines().all(|line| line.chars().count() <= 100), "{}", help.stdout);
            let is_group = help.stdout.contains("petstore account <COMMAND>")
                || help.stdout.contains(&format!("Usage: {} <COMMAND>\n", format!("petstore {command}").trim_end()));
            if !is_group && !["completions", "ephemeral", "manual"].contains(&command.as_str()) {
                let has = |flag| help.stdout.contains(flag);
                assert!(has("--data-dir <DIR>") && has("--deployment <NAME>"), "{command}: {}", help.stdout);
            }
        }
    }
}

#[test]
fn help_shows_no_environment_values() {
    // A value may be a secret, and help is pasted into tickets.
    let folder = Folder::new();
    let help = folder.command("serve --help").env("PETSTORE_BASE_URL", "https://u:s3cret@example.com/v1").output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    assert!(help.contains("--base-url") && !help.contains("s3cret"), "{help}");
}

#[test]
fn version_names_the_commit() {
    let version = Folder::new().succeed("--version");
    let before = format!("petstore {} (", env!("CARGO_PKG_VERSION"));
    let commit = version.strip_prefix(&before).and_then(|rest| rest.strip_suffix(")\n")).expect(&version);
    let is_hash = |text: &str| text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(commit == "unknown commit" || is_hash(commit.trim_end_matches("-dirty")), "{version}");
}

#[test]
fn build_script_names_the_commit_of_a_checkout() {
    let folder = Folder::new();
    let script = folder.path("build-script");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/build.rs");
    assert!(Command::new("rustc").args(["--edition=2024", source, "-o"]).arg(&script).status().unwrap().success());
    let output = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        output(folder.program("git").args(identity).args(arguments)).trim().to_owned()
    };
    let printed = |profile: &str| output(folder.program(&script).env("PROFILE", profile));
    let archive = printed("release");
    assert!(archive.starts_with("cargo::rustc-env=COMMIT=unknown commit\n"), "{archive}");

    git(&["init", "-q"]);
    folder.write("file", "1");
    git(&["add", "file"]);
    git(&["commit", "-qm", "first"]);
    let head = git(&["rev-parse", "--short=12", "HEAD"]);
    let first = printed("release");
    assert!(first.starts_with(&format!("cargo::rustc-env=COMMIT={head}\n")), "{first}");
    assert!(first.ends_with("cargo::rerun-if-changed=.git/logs/HEAD\n"), "the next commit runs it again: {first}");
    assert!(!printed("debug").contains("HEAD"), "a commit alone compiles nothing");
    folder.write("file", "2");
    assert!(printed("debug").starts_with(&format!("cargo::rustc-env=COMMIT={head}-dirty\n")));
}
