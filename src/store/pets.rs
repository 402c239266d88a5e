//! Animals, on either database.

use super::sqlite::Batch;
use super::{AnswerTo, PetSource, Result, Store, postgres, sqlite};
use crate::domain::{KeyedRequest, NewPet, Outcome, Pet, PetQuery, PetRef, StatusCounts};

impl Store {
    /// Adds an animal; durable once this returns.
    pub async fn create_pet(&self, pet: NewPet) -> Result<Pet> {
        match self {
            Self::Sqlite(db) => {
                db.write(move |batch| sqlite::pets::insert(batch, &pet).map(|id| pet.with_id(id))).await
            }
            Self::Postgres(db) => Box::pin(postgres::pets::insert(db, pet)).await,
        }
    }

    /// The same, unless the request's key was used before: the animal and the answer to it are kept together or not at all.
    pub async fn create_pet_once(&self, request: KeyedRequest, pet: NewPet, answer: AnswerTo<Pet>) -> Result<Outcome> {
        match self {
            Self::Sqlite(db) => {
                let insert = move |batch: &Batch<'_>| {
                    Ok(Ok(answer(&sqlite::pets::insert(batch, &pet).map(|id| pet.with_id(id))?)))
                };
                db.write_steps(move |batch| sqlite::idempotency::once(batch, &request, insert)).await
            }
            Self::Postgres(db) => Box::pin(db.create_pet_once(request, pet, answer)).await,
        }
    }

    /// Shows `each` the animals asked for, in order of their ids; says whether more of them follow.
    pub async fn list_pets(&self, query: &PetQuery, each: &mut (dyn FnMut(PetRef<'_>) + Send)) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::pets::list(conn, query, each)),
            Self::Postgres(db) => Box::pin(postgres::pets::list(db, query, each)).await,
        }
    }

    pub async fn find_pet(&self, id: i64) -> Result<Option<Pet>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::pets::find(conn, id)),
            Self::Postgres(db) => Box::pin(postgres::pets::find(db, id)).await,
        }
    }

    /// Adds every animal of `source` or, where it fails, none: one transaction. Returns how many were added.
    pub async fn import_pets(&self, source: PetSource) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.write_steps(move |batch| sqlite::pets::import(batch, source)).await,
            Self::Postgres(db) => postgres::pets::import(db, source).await,
        }
    }

    /// Passes every animal to `each`, in order of ids, and stops at the first error it returns. No transaction is open
    /// during the calls, so `each` may receive animals that were added or changed since the start.
    pub async fn export_pets(
        &self,
        each: &mut (dyn FnMut(PetRef<'_>) -> std::io::Result<()> + Send),
    ) -> Result<std::io::Result<u64>> {
        match self {
            Self::Sqlite(db) => sqlite::pets::export(db, each).await,
            Self::Postgres(db) => postgres::pets::export(db, each).await,
        }
    }

    pub async fn count_pets(&self) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.read(sqlite::pets::count),
            Self::Postgres(db) => postgres::pets::count(db).await,
        }
    }

    /// Reads an index from end to end: a tenth of a second for a million animals.
    pub async fn count_pets_by_status(&self) -> Result<StatusCounts> {
        match self {
            Self::Sqlite(db) => db.read(sqlite::pets::count_by_status),
            Self::Postgres(db) => postgres::pets::count_by_status(db).await,
        }
    }
}
