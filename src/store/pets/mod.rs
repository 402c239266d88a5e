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

methods! {
    /// Adds an animal; durable once this returns.
    async fn create_pet(pet: NewPet, key: Option<WriteKey<Pet<'static>>>) -> Result<Outcome<Pet<'static>>>;

    /// Passes a page of animals to `each`, in the direction of the query. Returns whether more follow.
    async fn list_pets(query: &PetQuery, each: &mut (dyn FnMut(Pet<'_>) + Send)) -> Result<bool>;

    async fn find_pet(id: i64) -> Result<Option<Pet<'static>>>;

    /// Adds all animals of `source` in one transaction. Returns their number.
    async fn import_pets(source: PetSource) -> Result<u64>;

    /// Passes every animal to `each`, in order of ids, and stops at the first error it returns. No transaction is open
    /// during the calls, so `each` may receive animals that were added or changed since the start.
    async fn export_pets(each: PetSink<'_>) -> Exported;

    /// Reads a whole index, which takes 0.1 s for a million animals.
    async fn count_pets_by_status() -> Result<StatusCounts>;
}

impl Store {
    pub async fn count_pets(&self) -> Result<u64> {
        Ok(self.count_pets_by_status().await?.total())
    }
}
