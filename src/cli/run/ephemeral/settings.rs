//! The settings of a service that a store for one test run takes.

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::config::ServiceSettings;

/// Names of the flags.
const TAKEN: [&str; 10] = [
    "listen", "messages-listen", "ops-listen", "base-url", "messages-base-url", "cors-origin", "rate-limit", "relay",
    "relay-secret-file", "relay-allow-plaintext",
];

/// The settings of the service. Its flags are those of [`TAKEN`], and their environment variables are ignored.
#[derive(Debug)]
pub struct TestSettings(pub ServiceSettings);

impl Args for TestSettings {
    fn augment_args(command: Command) -> Command {
        let all = ServiceSettings::augment_args(Command::new("service"));
        let taken = all.get_arguments().filter(|arg| arg.get_long().is_some_and(|name| TAKEN.contains(&name)));
        let taken = taken.map(|arg| match arg.get_long() {
            Some("listen" | "messages-listen" | "ops-listen") => arg.clone().env(None).default_value("127.0.0.1:0"),
            _ => arg.clone().env(None),
        });
        command.args(taken)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for TestSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = TAKEN.iter().flat_map(|name| {
            let values = matches.get_raw(&name.replace('-', "_")).into_iter().flatten();
            values.map(move |value| [format!("--{name}=").as_ref(), value].into_iter().collect())
        });
        Ok(Self(ServiceSettings::of_flags(flags)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
