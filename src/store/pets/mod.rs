//! Animals.

use super::export::{self, Exported, PetSink};
use super::postgres::database::PetId;
use super::postgres::rows as postgres_rows;
use super::row::{FromRow, Row};
use super::sqlite::{Atomicity, rows};
use super::statement::Sql;
use super::{Outcome, PetSource, Result, Store, WriteKey};
use crate::domain::{NewPet, Pet, PetQuery, PetStatus, StatusCounts};

/// The columns beside `id`, the first. A query may have `$status` instead of the column.
macro_rules! columns {
    () => {
        columns!("status")
    };
    ($status:literal) => {
        concat!("name, category_id, ", $status)
    };
}

/// A query for animals.
macro_rules! select {
    ($clauses:literal) => {
        concat!("SELECT id, ", columns!(), " FROM pets ", $clauses)
    };
}

pub(super) mod postgres;
pub(super) mod sqlite;

const LIST: &str = select!("WHERE id > $1 ORDER BY id LIMIT $2");

/// A count for each status.
const COUNTS: Sql = Sql {
    // Reads the three indexes instead of the table.
    sqlite: "SELECT 0, count(*) FROM pets WHERE status = 0
        UNION ALL SELECT 1, count(*) FROM pets WHERE status = 1
        UNION ALL SELECT 2, count(*) FROM pets WHERE status = 2",
    postgres: "SELECT status, count(*) FROM pets GROUP BY status",
};

/// Borrows the name from the row.
fn from_row<R: Row>(row: &R) -> Result<Pet<'_>, R::Error> {
    Ok(Pet { id: row.column(0)?, name: row.text(1)?.into(), category_id: row.column(2)?, status: row.column(3)? })
}

impl FromRow for Pet<'static> {
    fn from_row<R: Row>(row: &R) -> Result<Self, R::Error> {
        from_row(row).map(Pet::into_owned)
    }
}

impl Store {
    /// Adds an animal; durable once this returns.
    pub async fn create_pet(&self, pet: NewPet, key: Option<WriteKey<Pet<'static>>>) -> Result<Outcome<Pet<'static>>> {
        match self {
            Self::Sqlite(db) => db.create(pet, key).await,
            Self::Postgres(db) => Box::pin(db.pets.submit(pet, key)).await,
        }
    }

    /// Passes a page of animals to `each`, in the direction of the query. Returns whether more follow.
    pub async fn list_pets(&self, query: &PetQuery, each: &mut (dyn FnMut(Pet<'_>) + Send)) -> Result<bool> {
        match self {
            Self::Sqlite(db) => {
                let (sql, params) = (sqlite::list(query), (query.start(), query.limit.get() + 1));
                db.read(|conn| rows::page(conn, sql, params, query.limit, |row| from_row(row).map(&mut *each)))
            }
            Self::Postgres(db) => {
                let rows = Box::pin(db.lists.read(*query)).await?;
                postgres_rows::page(&rows, query.limit, |row| Ok(from_row(row).map(&mut *each)?))
            }
        }
    }

    pub async fn find_pet(&self, id: i64) -> Result<Option<Pet<'static>>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| rows::first(conn, sqlite::FIND, [id])),
            Self::Postgres(db) => Ok(Box::pin(db.finds.read(PetId(id))).await?),
        }
    }

    /// Adds all animals of `source` in one transaction. Returns their number.
    pub async fn import_pets(&self, source: PetSource) -> Result<u64> {
        match self {
            Self::Sqlite(db) => {
                db.submit_long(Atomicity::Savepoint, move |conn| sqlite::insert_all(conn, source)).await
            }
            Self::Postgres(db) => Box::pin(postgres::import(db, source)).await,
        }
    }

    /// Passes every animal to `each`, in order of ids, and stops at the first error it returns. No transaction is open
    /// during the calls, so `each` may receive animals that were added or changed since the start.
    pub async fn export_pets(&self, each: PetSink<'_>) -> Exported {
        let reader = self.page_reader().await?;
        let page = async |after: i64| reader.all(LIST, &[&after, &(export::PETS as i64)]).await;
        export::in_pages(export::PETS, i64::MIN, page, |pet: &Pet<'_>| pet.id, each).await
    }

    /// Reads a whole index, which takes 0.1 s for a million animals.
    pub async fn count_pets_by_status(&self) -> Result<StatusCounts> {
        let mut counts = StatusCounts::default();
        for (status, count) in self.all_long::<(PetStatus, i64)>(COUNTS.of(self).into()).await? {
            counts[status as usize] = count.unsigned_abs();
        }
        Ok(counts)
    }

    pub async fn count_pets(&self) -> Result<u64> {
        Ok(self.count_pets_by_status().await?.iter().sum())
    }
}
