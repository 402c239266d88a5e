//! `-h`: every command has one, and it fits an ordinary terminal.

use expect_test::expect;
use testkit::Folder;

const COMMANDS: [&str; 29] = [
    "",
    "quickstart",
    "serve",
    "account",
    "account create",
    "account list",
    "account set-password",
    "account delete",
    "key",
    "key create",
    "key list",
    "key revoke",
    "key rotate",
    "pets",
    "pets import",
    "pets export",
    "messages",
    "messages list",
    "messages export",
    "migrate",
    "migrate status",
    "move",
    "backup",
    "restore",
    "openapi",
    "config",
    "config show",
    "completions",
    "healthcheck",
];

#[test]
fn program_help_lists_the_commands() {
    expect![[r#"
        An animal store as an HTTP and JSON service

        Usage: petstore <COMMAND>

        Commands:
          quickstart   Create sample data and run the service
          serve        Run the service
          account      Create, list and delete accounts, and set passwords
          key          Create, list, revoke and rotate API keys
          pets         Import and export animals
          messages     List and export messages
          migrate      Migrate the database to the current schema
          move         Copy the embedded database to an empty PostgreSQL database
          backup       Back up the embedded database to a file
          restore      Restore the embedded database from a backup
          openapi      Print the OpenAPI document
          config       Show the configuration
          completions  Print a shell completion script
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
          -h, --help                   Print help (see more with '--help')

        Settings of the database and the log:
              --data-dir <DIR>       Folder of the embedded database [default: petstore-data]
              --database-url <URL>   PostgreSQL database to use instead:
                                     postgres://USER:PASSWORD@HOST:PORT/DATABASE; several HOST:PORT,
                                     separated by commas, are tried in order
              --deployment <NAME>    Purpose of the database, set when it is created; an existing database
                                     must match [possible values: production, staging]
              --config <FILE>        Configuration file (TOML)
              --log-level <LEVEL>    Lowest level to log to stderr [default: info] [possible values: error,
                                     warn, info, debug, trace]
              --log-format <FORMAT>  Log format of `serve` and `quickstart`; auto is human on a terminal,
                                     otherwise json [default: auto] [possible values: auto, human, json]

        Each setting is also an environment variable and a key of the configuration file: --data-dir is
        PETSTORE_DATA_DIR and data-dir. Flags override environment variables, which override the file.
    "#]]
    .assert_eq(&Folder::new().succeed("key create -h"));
}

#[test]
fn every_command_has_help_that_fits_a_terminal() {
    let folder = Folder::new();
    for command in COMMANDS {
        for flag in ["-h", "--help"] {
            let help = folder.run(&format!("{command} {flag}"));

            assert_eq!(help.code, Some(0), "{command}");
            assert_eq!(help.stderr, "", "{command}");
            assert!(help.stdout.contains(format!("Usage: petstore {command}").trim_end()), "{}", help.stdout);
            assert!(help.stdout.lines().all(|line| line.chars().count() <= 100), "{}", help.stdout);
        }
    }
}

#[test]
fn every_command_is_covered() {
    let folder = Folder::new();
    let mut found = vec![String::new()];
    let mut next = 0;
    while let Some(command) = found.get(next).cloned() {
        let help = folder.succeed(&format!("{command} -h"));
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names = listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        found.extend(names.map(|name| format!("{command} {name}").trim_start().to_owned()));
        next += 1;
    }
    found.sort();
    let mut tried = COMMANDS.to_vec();
    tried.sort_unstable();
    assert_eq!(found, tried);
}

#[test]
fn every_command_takes_data_directory_and_deployment() {
    let folder = Folder::new();
    for command in COMMANDS {
        let help = folder.succeed(&format!("{command} -h"));
        let only_a_group = help.contains("petstore account <COMMAND>")
            || help.contains(&format!("Usage: {} <COMMAND>\n", format!("petstore {command}").trim_end()));
        if !only_a_group && command != "completions" {
            assert!(help.contains("--data-dir <DIR>") && help.contains("--deployment <NAME>"), "{command}: {help}");
        }
    }
}

#[test]
fn help_shows_no_environment_values() {
    // What is set there may be a secret, and help is pasted into tickets.
    let folder = Folder::new();
    let help = folder.command("serve --help").env("PETSTORE_BASE_URL", "https://u:secret@example.com/v1").output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    assert!(help.contains("--base-url") && !help.contains("secret"), "{help}");
}

#[test]
fn version_is_that_of_the_package() {
    assert_eq!(Folder::new().succeed("--version"), format!("petstore {}\n", env!("CARGO_PKG_VERSION")));
}
