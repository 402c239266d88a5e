//! Every setting with its help and its default: in `ops/petstore.toml`, the file an operator starts from, and in
//! `docs/settings.md`.

use clap::Arg;
use expect_test::expect_file;
use petstore::config::{settings, takes_list};
use testkit::Folder;

const REFERENCE: &str = include_str!("../../ops/petstore.toml");
const PAGE: &str = include_str!("../../docs/settings.md");
const WIDTH: usize = 100;

/// A setting without a default keeps the example that the file has for it. `UPDATE_EXPECT=1` renews the rest.
#[test]
fn reference_file_lists_every_setting() {
    let (introduction, _) = REFERENCE.split_once("\n\n").unwrap();
    let entry = |arg: &Arg| format!("\n{}#{} = {}\n", comment(arg), arg.get_long().unwrap(), value(arg));
    let reference = listed(introduction, |heading| format!("\n### {heading}\n"), entry);
    expect_file!["../../ops/petstore.toml"].assert_eq(&reference);
}

/// `UPDATE_EXPECT=1` renews the tables of the page.
#[test]
fn settings_page_lists_every_setting() {
    let (introduction, _) = PAGE.split_once("\n\n## ").unwrap();
    let entry = |arg: &Arg| {
        let help = help(arg).replace(" [possible values: true, false]", "").replace(" [possible values: ", " [");
        let default = match value(arg) {
            value if arg.get_default_values().is_empty() => format!("for example `{value}`"),
            value => format!("`{value}`"),
        };
        format!("- `{}` ({default}): {help}\n", arg.get_long().unwrap())
    };
    let page = listed(introduction, |heading| format!("\n## {heading}\n\n"), entry);
    expect_file!["../../docs/settings.md"].assert_eq(&page);
}

#[test]
fn reference_file_changes_nothing_until_uncommented() {
    let folder = Folder::new();
    folder.write("petstore.toml", REFERENCE);
    assert_eq!(folder.succeed("config show --config petstore.toml"), folder.succeed("config show"));

    // A comment in words has a space after its sign.
    let counts = |line: &str| match line.strip_prefix('#') {
        Some(setting) if setting.starts_with(|first: char| first.is_ascii_lowercase()) => format!("{setting}\n"),
        _ => format!("{line}\n"),
    };
    folder.write("petstore.toml", REFERENCE.lines().map(counts).collect::<String>());

    let shown = folder.succeed("config show --config petstore.toml");

    for line in shown.lines() {
        assert!(line.ends_with(" # file"), "{line}");
    }
}

/// The introduction, and an entry for each setting below the heading of its group.
fn listed(introduction: &str, heading: impl Fn(&str) -> String, entry: impl Fn(&Arg) -> String) -> String {
    let command = petstore::cli::command();
    let show = command.find_subcommand("config").and_then(|config| config.find_subcommand("show")).unwrap();
    let (mut page, mut group) = (format!("{introduction}\n"), None);
    for arg in settings(show) {
        if arg.get_help_heading() != group {
            group = arg.get_help_heading();
            page += &heading(group.unwrap());
        }
        page += &entry(arg);
    }
    page
}

/// The flag's help, with its possible values.
fn help(arg: &Arg) -> String {
    let help = arg.get_help().unwrap().to_string();
    let possible: Vec<_> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if possible.is_empty() { help } else { format!("{help} [possible values: {}]", possible.join(", ")) }
}

/// The flag's help, as lines of comment.
fn comment(arg: &Arg) -> String {
    let mut lines = vec!["#".to_owned()];
    for word in help(arg).split_whitespace() {
        if lines.last().unwrap().len() + 1 + word.len() > WIDTH {
            lines.push("#".to_owned());
        }
        *lines.last_mut().unwrap() += &format!(" {word}");
    }
    lines.join("\n") + "\n"
}

fn value(arg: &Arg) -> String {
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_str().unwrap()).collect();
    let delimiter = arg.get_value_delimiter().unwrap_or('\0');
    let defaults: Vec<_> = defaults.into_iter().flat_map(|value| value.split(delimiter)).map(written).collect();
    match (defaults.first(), takes_list(arg)) {
        (Some(_), true) => format!("[{}]", defaults.join(", ")),
        (Some(default), false) => default.clone(),
        (None, _) => example(arg.get_long().unwrap()),
    }
}

fn written(value: &str) -> String {
    let is_bare = value.parse::<bool>().is_ok() || value.parse::<i64>().is_ok();
    if is_bare { value.to_owned() } else { toml::Value::from(value).to_string() }
}

fn example(name: &str) -> String {
    let start = format!("#{name} = ");
    let line = REFERENCE.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or("\"an example goes here\"").to_owned()
}
