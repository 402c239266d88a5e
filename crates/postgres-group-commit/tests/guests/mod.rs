//! The table of the tests, and writes to it.

use std::time::Duration;

use postgres_group_commit::tokio_postgres::Error as PostgresError;
use postgres_group_commit::{Cluster, DatabaseUrl, Options, PreparedConnection, Write};

const CREATE: &str = "CREATE TABLE guests (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL)";

pub const INSERT: &str = "INSERT INTO guests (name) SELECT * FROM unnest($1::text[]) RETURNING id, name";

pub const FIND: &str = "SELECT id, name FROM guests WHERE id = ANY ($1)";

/// A name to add. The outcome repeats it, so that a test sees whose outcome it is.
pub struct Guest(pub String);

impl Write for Guest {
    type Output = (i64, String);

    fn statements() -> Vec<&'static str> {
        vec![INSERT]
    }

    fn bytes(&self) -> usize {
        self.0.len()
    }

    async fn run(prepared: &PreparedConnection, guests: Vec<Self>) -> Result<Vec<Self::Output>, PostgresError> {
        let names: Vec<_> = guests.iter().map(|guest| &*guest.0).collect();
        let rows = prepared.query(INSERT, &[&names]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }
}

/// Options for a database whose timeouts load does not reach.
pub fn options(url: &str) -> Options {
    let mut url = DatabaseUrl::parse(url).unwrap();
    url.timeout = Duration::from_mins(5);
    Options { application_name: "guests".into(), ..Options::new(url) }
}

/// Connects and creates the table.
pub async fn connect(options: &Options) -> Cluster {
    let (cluster, connection) = Cluster::connect(options).await.unwrap();
    connection.client.batch_execute(CREATE).await.unwrap();
    cluster
}
