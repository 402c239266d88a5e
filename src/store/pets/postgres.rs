//! Animals.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio_postgres::{Client, Error, Row};

use crate::domain::{NewPet, Pet, PetQuery, PetStatus};
use crate::store::pets::from_row;
use crate::store::postgres::database::{PetId, Postgres};
use crate::store::postgres::of_commit;
use crate::store::postgres::rows::LONG;
use crate::store::postgres::write::{Write, WriteResult};
use crate::store::{PetSource, Result, StoreError};
use postgres_group_commit::{Pending, PreparedConnection, Read, Readers, within};

macro_rules! insert {
    ($source:literal) => {
        concat!("INSERT INTO pets (", columns!(), ") SELECT ", columns!(), " FROM ", $source)
    };
}

/// Inserts animals and returns their ids, in the order of the arrays. PostgreSQL assigns the ids row by row after
/// `ORDER BY`, and `RETURNING` keeps that order.
///
/// `turn` makes ids visible in increasing order, across connections and processes. The statement takes the table's
/// advisory lock before its first id, and PostgreSQL releases the lock after the commit is visible.
const INSERT: &str = concat!(
    "WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock('pets'::regclass::int, 0)) ",
    insert!("turn, unnest($1::text[], $2::bigint[], $3::smallint[]) WITH ORDINALITY AS given ("),
    columns!(),
    ", position) ORDER BY position RETURNING id"
);

/// Takes the lock of [`INSERT`] before the first id.
const TURN: &str = "SELECT pg_advisory_xact_lock('pets'::regclass::int, 0)";

/// Begins a transaction, and creates a temporary table of animals to add. An import or a reset fills it first, and so keeps
/// its locks only while the server copies the rows. The first columns are those of [`arrays`], in their order.
const BEGIN_ADDED: &str = "BEGIN; CREATE TEMPORARY TABLE added_pets (name text, category_id bigint, status smallint,
    position bigint, id bigint GENERATED ALWAYS AS IDENTITY) ON COMMIT DROP";

const FILL_ADDED: &str = "INSERT INTO pg_temp.added_pets
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::smallint[]) WITH ORDINALITY ORDER BY ordinality";

pub const INSERT_ADDED: &str = insert!("pg_temp.added_pets ORDER BY id");

/// Number of animals that one statement adds to the temporary table.
const CHUNK: usize = 1_000;

/// Pages after several ids, each with its limit. Every row ends with the place of its page in the arrays.
///
/// The status is part of the statement. A list by status therefore reads the index of that status: with a parameter,
/// PostgreSQL could read the primary key, and with it all animals of other statuses in between.
macro_rules! pages {
    ($status:literal) => {
        [pages!($status, "id > start ORDER BY id"), pages!($status, "id < start ORDER BY id DESC")]
    };
    ($status:literal, $page:literal) => {
        concat!(
            "SELECT page.*, place FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS asked (start, rows, place),
                LATERAL (",
            select!("WHERE "),
            $status,
            $page,
            " LIMIT rows) AS page"
        )
    };
}

/// Statements for lists, ascending and descending: without a status, then ordered by the codes of the statuses.
const PAGES: [[&str; 2]; 1 + PetStatus::ALL.len()] =
    [pages!(""), pages!("status = 0 AND "), pages!("status = 1 AND "), pages!("status = 2 AND ")];

/// Maximum number of pages that share a query. With 8, a page of 20 costs PostgreSQL 15 µs of CPU time instead of 25 µs.
const SHARED: usize = 8;

const FIND: &str = select!("WHERE id = ANY ($1)");

/// Statements prepared on each connection for reads or single writes.
pub const STATEMENTS: &[&str] =
    &[FIND, PAGES[0][0], PAGES[0][1], PAGES[1][0], PAGES[1][1], PAGES[2][0], PAGES[2][1], PAGES[3][0], PAGES[3][1]];

/// Adds all animals in one transaction. If it fails, the connection is dropped and the transaction with it.
pub async fn import(db: &Postgres, source: PetSource) -> Result<u64> {
    let connection = db.cluster.connection().await?;
    let (client, warnings) = (&connection.client, connection.warnings());
    let added = begin_added(client, source).await?;
    let in_doubt = "the animals may have been added, count them";
    // Sent at once, so that a process that hangs does not keep the lock.
    let insert = format!("{TURN}; {INSERT_ADDED}; COMMIT");
    client.batch_execute(&insert).await.map_err(|error| of_commit(error, in_doubt))?;
    connection.not_warned_since(warnings)?;
    Ok(added)
}

/// Begins a transaction, and creates and fills the table of [`INSERT_ADDED`] in it. Returns the number of animals.
pub async fn begin_added(client: &Client, source: PetSource) -> Result<u64> {
    within(LONG, client.batch_execute(BEGIN_ADDED)).await?;
    let fill = within(LONG, client.prepare(FILL_ADDED)).await?;
    let (mut source, mut count) = (source.fuse(), 0);
    loop {
        let chunk: Vec<_> = source.by_ref().take(CHUNK).collect::<Result<_, _>>().map_err(StoreError::Refused)?;
        if chunk.is_empty() {
            return Ok(count);
        }
        let (names, categories, statuses) = arrays(&chunk);
        count += within(LONG, client.execute(&fill, &[&names, &categories, &statuses])).await?;
    }
}

/// Returns the parameters of a statement that inserts animals from arrays.
fn arrays(pets: &[NewPet]) -> (Vec<&str>, Vec<i64>, Vec<i16>) {
    pets.iter().map(|NewPet { name, category_id, status }| (name.as_str(), *category_id, status.code())).collect()
}

impl Write for NewPet {
    type Output = Pet<'static>;
    type Refusal = Infallible;

    const STATEMENTS: &[&str] = &[INSERT];

    fn bytes(&self) -> usize {
        self.name.as_str().len()
    }

    async fn run(prepared: &PreparedConnection, pets: Vec<Self>) -> Result<Vec<WriteResult<Self>>, Error> {
        let (names, categories, statuses) = arrays(&pets);
        let rows = prepared.query(INSERT, &[&names, &categories, &statuses]).await?;
        pets.into_iter().zip(&rows).map(|(pet, row)| Ok(Ok(pet.with_id(row.try_get(0)?)))).collect()
    }
}

/// Equal lists share a page, and lists that differ only in their start and limit share a query.
impl Read for PetQuery {
    type Answer = Arc<Vec<Row>>;

    async fn run(readers: &Readers, batch: Vec<Pending<Self>>) {
        let mut lists: HashMap<_, Vec<_>> = HashMap::new();
        for Pending { read, reply } in batch {
            lists.entry(read).or_default().push(reply);
        }
        let mut queries: HashMap<_, Vec<Vec<_>>> = HashMap::new();
        for list in lists {
            let [ascending, descending] = PAGES[list.0.status.map_or(0, |status| 1 + status as usize)];
            let queries = queries.entry(list.0.direction.choose(ascending, descending)).or_default();
            match queries.last_mut() {
                Some(last) if last.len() < SHARED => last.push(list),
                _ => queries.push(vec![list]),
            }
        }
        let queries = queries.into_iter().flat_map(|(sql, queries)| queries.into_iter().map(move |lists| (sql, lists)));
        join_all(queries.map(|(sql, lists)| async move {
            let pages = pages_of(readers, sql, lists.iter().map(|(query, _)| query)).await;
            for (place, (_, replies)) in lists.into_iter().enumerate() {
                let page = pages.as_ref().map(|pages| Arc::clone(&pages[place])).map_err(Clone::clone);
                replies.into_iter().for_each(|reply| _ = reply.send(page.clone()));
            }
        }))
        .await;
    }
}

/// Runs one of the statements of [`PAGES`]. Returns a page for each list.
async fn pages_of(
    readers: &Readers,
    sql: &'static str,
    lists: impl Iterator<Item = &PetQuery>,
) -> postgres_group_commit::Result<Vec<Arc<Vec<Row>>>> {
    let (starts, rows): (Vec<_>, Vec<_>) = lists.map(|list| (list.start(), list.limit.get() + 1)).unzip();
    let mut pages = starts.iter().map(|_| Vec::new()).collect::<Vec<_>>();
    for row in readers.query(sql, &[&starts, &rows]).await? {
        let place: i64 = row.try_get("place")?;
        pages[place as usize - 1].push(row);
    }
    Ok(pages.into_iter().map(Arc::new).collect())
}

/// Finds all animals of a batch in one statement.
impl Read for PetId {
    type Answer = Option<Pet<'static>>;

    async fn run(readers: &Readers, batch: Vec<Pending<Self>>) {
        let ids: Vec<_> = batch.iter().map(|pending| pending.read.0).collect();
        let found = readers.query(FIND, &[&ids]).await;
        let found = found.and_then(|rows| {
            rows.iter()
                .map(|row| Ok(from_row(row).map(|pet| (pet.id, pet.into_owned()))?))
                .collect::<postgres_group_commit::Result<HashMap<_, _>>>()
        });
        for Pending { read, reply } in batch {
            _ = reply.send(found.as_ref().map(|found| found.get(&read.0).cloned()).map_err(Clone::clone));
        }
    }
}
