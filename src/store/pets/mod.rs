//! Animals.

use super::export::{Exported, PetSink};
use super::{Outcome, PetSource, Result, Store, WriteKey};
use crate::domain::{NewPet, Pet, PetQuery, StatusCounts};

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

pub(super) const LIST: &str = select!("WHERE id > $1 ORDER BY id LIMIT $2");

impl Store {
    /// Adds an animal; durable once this returns.
    pub async fn create_pet(&self, pet: NewPet, key: Option<WriteKey<Pet<'static>>>) -> Result<Outcome<Pet<'static>>> {
        match self {
            Self::Sqlite(db) => db.create_pet(pet, key).await,
            Self::Postgres(db) => Box::pin(db.create_pet(pet, key)).await,
        }
    }

    /// Passes a page of animals to `each`, in the direction of the query. Returns whether more follow.
    pub async fn list_pets(&self, query: &PetQuery, each: &mut (dyn FnMut(Pet<'_>) + Send)) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.list_pets(query, each).await,
            Self::Postgres(db) => Box::pin(db.list_pets(query, each)).await,
        }
    }

    pub async fn find_pet(&self, id: i64) -> Result<Option<Pet<'static>>> {
        match self {
            Self::Sqlite(db) => db.find_pet(id).await,
            Self::Postgres(db) => Box::pin(db.find_pet(id)).await,
        }
    }

    /// Adds all animals of `source` in one transaction. Returns their number.
    pub async fn import_pets(&self, source: PetSource) -> Result<u64> {
        dispatch!(self, db => db.import_pets(source).await)
    }

    /// Passes every animal to `each`, in order of ids, and stops at the first error it returns. No transaction is open
    /// during the calls, so `each` may receive animals that were added or changed since the start.
    pub async fn export_pets(&self, each: PetSink<'_>) -> Exported {
        dispatch!(self, db => db.export_pets(each).await)
    }

    pub async fn count_pets(&self) -> Result<u64> {
        Ok(self.count_pets_by_status().await?.total())
    }

    /// Reads a whole index, which takes 0.1 s for a million animals.
    pub async fn count_pets_by_status(&self) -> Result<StatusCounts> {
        dispatch!(self, db => db.count_pets_by_status().await)
    }
}
