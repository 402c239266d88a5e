//! Animals in SQLite.

use rusqlite::{Connection, OptionalExtension, Row};

use super::Sqlite;
use super::rows::show;
use super::writer::{Atomicity, Batch};
use crate::domain::{NewPet, Pet, PetQuery, PetRef, PetStatus, StatusCounts};
use crate::store::{Outcome, PetSource, Result, StoreError, WriteKey, export};

const LIST: &str = "SELECT id, name, category_id, status FROM pets WHERE id > ?1 ORDER BY id LIMIT ?2";

impl Sqlite {
    pub async fn create_pet(&self, pet: NewPet, key: Option<WriteKey<Pet>>) -> Result<Outcome<Pet>> {
        self.write_keyed(Atomicity::Statement, key, move |batch| insert(batch, &pet).map(|id| Ok(pet.with_id(id))))
            .await
    }

    pub async fn list_pets(&self, query: &PetQuery, each: &mut (dyn FnMut(PetRef<'_>) + Send)) -> Result<bool> {
        self.read(|conn| list(conn, query, each))
    }

    pub async fn find_pet(&self, id: i64) -> Result<Option<Pet>> {
        self.read(|conn| find(conn, id))
    }

    pub async fn import_pets(&self, source: PetSource) -> Result<u64> {
        self.submit(Atomicity::Savepoint, move |batch| {
            let mut added = 0;
            for pet in source {
                insert(batch, &pet.map_err(StoreError::Refused)?)?;
                added += 1;
            }
            Ok(added)
        })
        .await
    }

    pub async fn export_pets(
        &self,
        each: &mut (dyn FnMut(PetRef<'_>) -> std::io::Result<()> + Send),
    ) -> Result<std::io::Result<u64>> {
        let page = async |after| self.read_once(|conn| page(conn, after));
        export::in_pages(export::PETS, i64::MIN, page, |pet: &Pet| pet.id, |pet| each(pet.as_pet_ref())).await
    }

    pub async fn count_pets(&self) -> Result<u64> {
        self.read_long(|conn| {
            let count: i64 = conn.prepare_cached("SELECT count(*) FROM pets")?.query_row([], |row| row.get(0))?;
            Ok(count.unsigned_abs())
        })
        .await
    }

    pub async fn count_pets_by_status(&self) -> Result<StatusCounts> {
        self.read_long(|conn| {
            let mut statement = conn.prepare_cached("SELECT status, count(*) FROM pets GROUP BY status")?;
            let mut rows = statement.query([])?;
            let mut counts = StatusCounts::default();
            while let Some(row) = rows.next()? {
                *counts.of(status(row, 0)?) = row.get::<_, i64>(1)?.unsigned_abs();
            }
            Ok(counts)
        })
        .await
    }
}

fn insert(batch: &Batch<'_>, pet: &NewPet) -> Result<i64> {
    batch.execute(
        "INSERT INTO pets (name, category_id, status) VALUES (?1, ?2, ?3)",
        (pet.name.as_str(), pet.category_id, to_column(pet.status)),
    )?;
    Ok(batch.last_insert_rowid())
}

/// Reads one row beyond the limit to learn whether another page follows.
fn list(conn: &Connection, query: &PetQuery, each: &mut dyn FnMut(PetRef<'_>)) -> Result<bool> {
    let after = query.after.unwrap_or(i64::MIN);
    let one_more = query.limit.get() + 1;
    let mut statement;
    let mut rows = match query.status {
        Some(status) => {
            statement = conn.prepare_cached(
                "SELECT id, name, category_id, status FROM pets WHERE status = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
            )?;
            statement.query((to_column(status), after, one_more))?
        }
        None => {
            statement = conn.prepare_cached(LIST)?;
            statement.query((after, one_more))?
        }
    };
    show(&mut rows, query.limit, |row| from_row(row).map(&mut *each))
}

pub fn find(conn: &Connection, id: i64) -> Result<Option<Pet>> {
    Ok(conn
        .prepare_cached("SELECT id, name, category_id, status FROM pets WHERE id = ?1")?
        .query_row([id], |row| Ok(from_row(row)?.to_owned()))
        .optional()?)
}

fn page(conn: &Connection, after: i64) -> Result<Vec<Pet>> {
    let mut statement = conn.prepare_cached(LIST)?;
    let pets = statement.query_map((after, export::PETS as i64), |row| Ok(from_row(row)?.to_owned()))?;
    Ok(pets.collect::<rusqlite::Result<_>>()?)
}

/// Sets the status of an existing animal.
pub fn set_status(batch: &Batch<'_>, id: i64, status: PetStatus) -> Result<()> {
    batch.execute("UPDATE pets SET status = ?2 WHERE id = ?1", (id, to_column(status)))?;
    Ok(())
}

pub const fn to_column(status: PetStatus) -> i64 {
    match status {
        PetStatus::Available => 0,
        PetStatus::Pending => 1,
        PetStatus::Sold => 2,
    }
}

fn from_row<'row>(row: &'row Row<'_>) -> rusqlite::Result<PetRef<'row>> {
    Ok(PetRef { id: row.get(0)?, name: row.get_ref(1)?.as_str()?, category_id: row.get(2)?, status: status(row, 3)? })
}

fn status(row: &Row<'_>, position: usize) -> rusqlite::Result<PetStatus> {
    let column: i64 = row.get(position)?;
    let status = PetStatus::ALL.into_iter().find(|status| to_column(*status) == column);
    status.ok_or(rusqlite::Error::IntegralValueOutOfRange(position, column))
}
