//! Animals in SQLite.

use rusqlite::Statement;

use crate::domain::{NewPet, Pet, PetQuery, PetStatus};
use crate::store::pets::LIST;
use crate::store::sqlite::{Effect, Insert, NewRow, WriteConnection};
use crate::store::{PetSource, Result, StoreError};

macro_rules! insert {
    ($rows:literal) => {
        concat!("INSERT INTO pets (", columns!(), ") VALUES ", $rows)
    };
}

const INSERT: &str = insert!("(?, ?, ?)");

const INSERT_SEVERAL: &str =
    insert!("(?, ?, ?), (?, ?, ?), (?, ?, ?), (?, ?, ?), (?, ?, ?), (?, ?, ?), (?, ?, ?), (?, ?, ?)");

pub const FIND: &str = select!("WHERE id = ?1");

const LIST_DESCENDING: &str = select!("WHERE id < ?1 ORDER BY id DESC LIMIT ?2");

/// The lists of a status, ascending and descending. The status is part of the statement because each has an index of its own.
macro_rules! list_by_status {
    ($status:literal) => {
        [list_by_status!($status, "id > ?1 ORDER BY id"), list_by_status!($status, "id < ?1 ORDER BY id DESC")]
    };
    ($status:literal, $page:literal) => {
        concat!("SELECT id, ", columns!($status), " FROM pets WHERE status = ", $status, " AND ", $page, " LIMIT ?2")
    };
}

/// Ordered by the codes of the statuses.
const LISTS_BY_STATUS: [[&str; 2]; PetStatus::ALL.len()] = [list_by_status!(0), list_by_status!(1), list_by_status!(2)];

/// Returns the statement of a list.
pub fn list(query: &PetQuery) -> &'static str {
    let by_status = query.status.map(|status| LISTS_BY_STATUS[status as usize]);
    let [ascending, descending] = by_status.unwrap_or([LIST, LIST_DESCENDING]);
    query.direction.choose(ascending, descending)
}

impl NewRow for NewPet {
    const INSERT: Insert = Insert { one: INSERT, several: INSERT_SEVERAL };
    const EFFECT: Effect = Effect::Adds;
    type Added = Pet<'static>;

    fn bind(&self, statement: &mut Statement<'_>, first: usize) -> rusqlite::Result<()> {
        let Self { name, category_id, status } = self;
        statement.raw_bind_parameter(first, name.as_str())?;
        statement.raw_bind_parameter(first + 1, category_id)?;
        statement.raw_bind_parameter(first + 2, status.code())
    }

    fn added(self, rowid: i64) -> Pet<'static> {
        self.with_id(rowid)
    }
}

/// Inserts animals and returns their number.
pub fn insert_all(conn: &WriteConnection<'_>, source: PetSource) -> Result<u64> {
    let mut added = 0;
    for pet in source {
        pet.map_err(StoreError::Refused)?.insert(conn)?;
        added += 1;
    }
    Ok(added)
}

pub fn set_status(conn: &WriteConnection<'_>, id: i64, status: PetStatus) -> Result<()> {
    conn.execute("UPDATE pets SET status = ?2 WHERE id = ?1", (id, status.code()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::plan;

    #[test]
    fn lists_read_one_index_and_nothing_else() {
        assert_eq!(plan(LIST), ["SEARCH pets USING INTEGER PRIMARY KEY (rowid>?)"]);
        assert_eq!(plan(LIST_DESCENDING), ["SEARCH pets USING INTEGER PRIMARY KEY (rowid<?)"]);
        for (lists, index) in LISTS_BY_STATUS.into_iter().zip(["pets_available", "pets_pending", "pets_sold"]) {
            let search = format!("SEARCH pets USING COVERING INDEX {index} (id>?)");
            assert_eq!(lists.map(plan), [[&*search], [&*search.replace('>', "<")]]);
        }
    }
}
