//! petstore's API with axum and sqlx.
//!
//! `petstore-axum serve` serves the database `DATABASE` on the port `PORT`. `petstore-axum fill DATABASE` creates a database
//! with the animals on stdin (one JSON object per line) and the key in `BENCH_KEY`.

mod api;
mod error;
mod store;

use std::{env, error::Error, io, process::ExitCode};

use axum::serve::ListenerExt;
use tokio::{
    net::TcpListener,
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

use crate::{api::Api, store::Store};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // A single thread without work stealing is the cheapest runtime on one core. Each connection of sqlx has a thread.
    let runtime = Builder::new_current_thread().enable_all().build().expect("the runtime starts");
    let done = match arguments[..] {
        ["serve"] => runtime.block_on(serve()),
        ["fill", path] => runtime.block_on(fill(path)),
        _ => Err("usage: petstore-axum serve, or petstore-axum fill DATABASE < ANIMALS".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("petstore-axum: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Failure> {
    let database = env::var("DATABASE").map_err(|_| "DATABASE is not set")?;
    let port = env::var("PORT").map_or(Ok(0), |port| port.parse())?;
    let readers = env::var("READERS").map_or(Ok(store::READERS), |readers| readers.parse())?;
    let store = Store::open(&database, readers).await?;

    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let base = env::var("BASE_URL").unwrap_or_else(|_| format!("http://{address}/v1"));
    let app = api::router(Api::new(store.clone(), base))?;
    println!("listening {address}");

    // Without this, the kernel delays small responses until the client has acknowledged the previous one.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            eprintln!("cannot set TCP_NODELAY: {error}");
        }
    });
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopped = async move {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = interrupt.recv() => (),
        }
    };
    axum::serve(listener, app).with_graceful_shutdown(stopped).await?;
    store.close().await;
    Ok(())
}

async fn fill(path: &str) -> Result<(), Failure> {
    let key = env::var("BENCH_KEY").map_err(|_| "BENCH_KEY is not set")?;
    let pets = io::stdin().lines().map(|line| Ok(serde_json::from_str(&line?)?));
    store::fill(path, &key, pets).await
}
