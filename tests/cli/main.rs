//! The command line, by the built program: what it prints, how it ends, what it leaves behind.

mod accounts;
mod animals;
mod backups;
mod configuration;
mod copy_to_postgres;
mod database_url;
mod documented_commands;
mod help;
mod interrupts;
mod keys;
mod logs;
mod messages;
mod migrations;
mod prometheus;
mod proxies;
mod quickstart;
mod reference_file;
mod relay;
mod scripts;
mod serve;
mod shell;
mod small_commands;
mod stalled_log;
mod systemd;
mod tls;
mod usage;
