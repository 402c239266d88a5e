//! A guest book: POST adds a name, durable before the response, and GET lists the last ones. Run it with
//! `cargo run --example sqlite_guest_book data`, then `curl -d Ada localhost:8080`.

use std::error::Error;
use std::sync::Arc;

use bounded_http::{TimedBody, serve, service_fn};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use sqlite_group_commit::{self as sgc, Atomicity, Database, Effect, Folder, Options, Steps};
use tokio::net::TcpListener;

const SCHEMA: Steps = Steps(&["CREATE TABLE guests (id INTEGER PRIMARY KEY, name TEXT NOT NULL)"]);
const INSERT: &str = "INSERT INTO guests (name) VALUES (?1)";
const LIST: &str = "SELECT name FROM guests ORDER BY id DESC LIMIT 10";

type Answer<T> = Result<T, Box<dyn Error + Send + Sync>>;

async fn answer(request: Request<TimedBody>, db: &Database) -> Answer<String> {
    if request.method() == Method::POST {
        let name = Limited::new(request.into_body(), 100).collect().await?.to_bytes();
        let name = String::from_utf8(name.into())?;
        let added = db.submit(Atomicity::Statement, Effect::Any, move |conn| {
            conn.execute(INSERT, [name])?;
            Ok(conn.last_insert_rowid())
        });
        return Ok(added.await?.to_string());
    }
    let names: Vec<String> = db.read(|conn| -> sgc::Result<_> {
        Ok(conn.prepare_cached(LIST)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
    })?;
    Ok(names.join(", "))
}

pub async fn run(listener: TcpListener, dir: &str, stop: impl Future<Output = ()>) -> Answer<()> {
    let db = Arc::new(Database::open(&Folder::new(dir, "guests"), &Options::default(), &SCHEMA)?);
    let shared = Arc::clone(&db);
    let service = service_fn(move |request, _peer| {
        let db = Arc::clone(&shared);
        async move {
            let answer = answer(request, &db).await;
            let (status, text) = answer.map_or_else(|error| (503, error.to_string()), |text| (200, text));
            Response::builder().status(status).body(Full::from(text)).unwrap()
        }
    });
    // Without this, a service whose disk has failed would stay up and refuse all writes.
    let stop = async { tokio::select!(() = stop => {}, why = db.failed() => eprintln!("{why}")) };
    serve(listener, service, stop).await;
    db.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Answer<()> {
    let dir = std::env::args().nth(1).ok_or("give the folder of the database")?;
    run(TcpListener::bind("127.0.0.1:8080").await?, &dir, async { tokio::signal::ctrl_c().await.unwrap() }).await
}
