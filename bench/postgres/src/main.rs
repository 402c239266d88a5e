//! The same writes and reads through four clients of PostgreSQL. Prints JSON.
//!
//! `postgres-clients CLIENT HOSTS load WRITERS READERS SECONDS` lets so many tasks insert rows, and others find one of the first
//! rows. `postgres-clients CLIENT HOSTS ledger` inserts until its standard input ends, and compares what it was told with the rows.

mod clients;
mod ledger;
mod load;

use clients::{Client, Deadpool, GroupCommit, Pipelined, Sqlx};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[0] {
        "postgres-group-commit" => run::<GroupCommit>(&arguments[1..]).await,
        "tokio-postgres" => run::<Pipelined>(&arguments[1..]).await,
        "deadpool-postgres" => run::<Deadpool>(&arguments[1..]).await,
        "sqlx" => run::<Sqlx>(&arguments[1..]).await,
        other => panic!("unknown client {other}"),
    }
}

async fn run<C: Client>(arguments: &[&str]) {
    match *arguments {
        [hosts, "load", writers, readers, seconds] => {
            let [writers, readers, seconds] = [writers, readers, seconds].map(|number| number.parse().unwrap());
            load::run(C::connect(hosts).await, writers, readers, seconds).await;
        }
        [hosts, "ledger"] => ledger::run(C::connect(hosts).await, hosts).await,
        _ => panic!("usage: CLIENT HOSTS load WRITERS READERS SECONDS, or CLIENT HOSTS ledger"),
    }
}
