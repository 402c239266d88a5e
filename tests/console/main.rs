//! The console: over sockets, and as a person sees it in a real browser. Chromium and its driver come with
//! `scripts/test`, and so does axe; where one is missing a test fails.

mod accessibility;
mod accounts;
mod browser;
mod cross_site;
mod forms;
mod keys;
mod on_postgres;
mod pages;
#[path = "../service/mod.rs"]
mod service;
mod sessions;
mod stories;
