//! A guest book: POST adds a name once, durable before the response, and GET lists the last ones. Run it with
//! `cargo run --example postgres_guest_book postgres://localhost/postgres`, then `curl -d Ada localhost:8080`.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use bounded_http::{TimedBody, serve, service_fn};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use postgres_group_commit::{self as pgc, Cluster, DatabaseUrl, Options, Readers, WriteQueue};
use tokio::net::TcpListener;

const CREATE: &str =
    "CREATE TABLE IF NOT EXISTS guests (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text UNIQUE)";
// One duplicate would fail all writes of its batch.
const INSERT: &str =
    "INSERT INTO guests (name) SELECT * FROM unnest($1::text[]) ON CONFLICT DO NOTHING RETURNING name, id";
const LIST: &str = "SELECT name FROM guests ORDER BY id DESC LIMIT 10";

type Answer<T> = Result<T, Box<dyn Error + Send + Sync>>;

struct Guest(String);

impl pgc::Write for Guest {
    /// The id, unless the name is there already.
    type Output = Option<i64>;
    fn statements() -> Vec<&'static str> {
        vec![INSERT]
    }
    fn bytes(&self) -> usize {
        self.0.len()
    }
    async fn run(
        prepared: &pgc::PreparedConnection,
        guests: Vec<Self>,
    ) -> Result<Vec<Option<i64>>, pgc::tokio_postgres::Error> {
        let names: Vec<_> = guests.iter().map(|guest| &*guest.0).collect();
        let rows = prepared.query(INSERT, &[&names]).await?;
        let mut ids: HashMap<&str, _> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        Ok(names.iter().map(|name| ids.remove(name)).collect())
    }
}

async fn answer(request: Request<TimedBody>, guests: &WriteQueue<Guest>, readers: &Readers) -> Answer<String> {
    if request.method() == Method::POST {
        let name = Limited::new(request.into_body(), 100).collect().await?.to_bytes();
        let id = guests.submit(Guest(String::from_utf8(name.into())?)).await?;
        return Ok(id.map_or("already there".into(), |id| id.to_string()));
    }
    let rows = readers.query(LIST, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect::<Vec<&str>>().join(", "))
}

pub async fn run(listener: TcpListener, url: &str, stop: impl Future<Output = ()>) -> Answer<()> {
    let (cluster, connection) = Cluster::connect(&Options::new(DatabaseUrl::parse(url)?)).await?;
    connection.client.batch_execute(CREATE).await?;
    let book = Arc::new((
        cluster.write_queue("guests", Arc::new(())).await?,
        cluster.readers("reads", 2, &[LIST], Arc::new(())).await?,
    ));
    let service = service_fn(move |request, _peer| {
        let book = Arc::clone(&book);
        async move {
            let answer = answer(request, &book.0, &book.1).await;
            let (status, text) = answer.map_or_else(|error| (503, error.to_string()), |text| (200, text));
            Response::builder().status(status).body(Full::from(text)).unwrap()
        }
    });
    serve(listener, service, stop).await;
    Ok(())
}

#[tokio::main]
async fn main() -> Answer<()> {
    let url = std::env::args().nth(1).ok_or("give the URL of a database")?;
    run(TcpListener::bind("127.0.0.1:8080").await?, &url, async { tokio::signal::ctrl_c().await.unwrap() }).await
}
