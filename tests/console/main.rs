//! The console, over sockets and in a real browser. `scripts/test` installs Chromium, its driver and axe; a test fails if
//! one is missing.

mod accessibility;
mod accounts;
mod audit;
mod browser;
mod cross_site;
mod forms;
mod keys;
mod life_cycle;
mod lists;
mod pages;
mod reference;
mod requests;
mod reset;
mod roles;
#[path = "../service/mod.rs"]
mod service;
mod sessions;
mod simulation;
mod stories;
mod users;
