//! Stands in for the client in a build without the feature `otlp`.

use std::io;

use axum::http::uri::Uri;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;

pub enum Client {}

impl Client {
    pub fn new(_: Uri, _: HeaderMap, _: Option<&str>) -> Result<Self, String> {
        Err("this build exports no traces; for one that does, run `cargo build --release --locked`".into())
    }

    pub async fn post(&mut self, _: Bytes) -> io::Result<StatusCode> {
        match *self {}
    }
}
