//! Everything that is kept, behind one type. A method is one business operation and its own transaction;
//! connections and transactions never leave this module.
//!
//! The set of databases is closed, so it is an enum and not a trait: a missing arm does not compile.

mod error;
pub mod postgres;
pub mod sqlite;

pub use error::StoreError;
use postgres::Postgres;
use sqlite::Sqlite;
pub use sqlite::{MigrationStatus, Version};

use crate::domain::account::PasswordDigest;
use crate::domain::api_key::{KeyGrant, NewKey, Rotation};
use crate::domain::{
    Account, AccountId, Deployment, Email, KeyHash, KeyId, KeyRecord, Message, NewPet, Pet, PetQuery, PetRef, Timestamp,
};

pub type Result<T> = std::result::Result<T, StoreError>;

/// A stream of animals to take in: it ends at the first error, and then nothing of it is kept.
pub type PetSource = Box<dyn Iterator<Item = std::result::Result<NewPet, String>> + Send>;

#[derive(Debug)]
pub enum Store {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Store {
    /// What the database was made for.
    pub fn deployment(&self) -> Deployment {
        match self {
            Self::Sqlite(db) => db.deployment(),
            Self::Postgres(db) => db.deployment(),
        }
    }

    /// Adds an animal; durable once this returns.
    pub async fn create_pet(&self, pet: NewPet) -> Result<Pet> {
        match self {
            Self::Sqlite(db) => {
                let insert = move |conn: &_| sqlite::pets::insert(conn, &pet).map(|id| pet.with_id(id));
                db.write(insert).await
            }
            Self::Postgres(db) => postgres::pets::insert(db, pet).await,
        }
    }

    /// Shows `each` the animals asked for, in order of their ids; says whether more of them follow.
    pub async fn list_pets(&self, query: &PetQuery, each: &mut (dyn FnMut(PetRef<'_>) + Send)) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::pets::list(conn, query, each)),
            Self::Postgres(db) => postgres::pets::list(db, query, each).await,
        }
    }

    pub async fn find_pet(&self, id: i64) -> Result<Option<Pet>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::pets::find(conn, id)),
            Self::Postgres(db) => postgres::pets::find(db, id).await,
        }
    }

    /// Adds every animal of `source` or, where it fails, none: one transaction. Returns how many were added.
    pub async fn import_pets(&self, source: PetSource) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.write_steps(move |conn| sqlite::pets::import(conn, source)).await,
            Self::Postgres(db) => postgres::pets::import(db, source).await,
        }
    }

    /// Shows `each` every animal, as of one moment; stops at the first error it returns.
    pub async fn export_pets(
        &self,
        each: &mut (dyn FnMut(PetRef<'_>) -> std::io::Result<()> + Send),
    ) -> Result<std::io::Result<u64>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::pets::export(conn, each)),
            Self::Postgres(db) => postgres::pets::export(db, each).await,
        }
    }

    pub async fn count_pets(&self) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.read(sqlite::pets::count),
            Self::Postgres(db) => postgres::pets::count(db).await,
        }
    }

    /// Takes a message on; durable once this returns.
    pub async fn create_message(&self, message: Message) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.write(move |conn| sqlite::messages::insert(conn, &message)).await,
            Self::Postgres(db) => db.create_message(message).await,
        }
    }

    /// Makes an account, or returns nothing where its address is taken.
    pub async fn create_account(
        &self,
        email: Email,
        password: Option<PasswordDigest>,
        now: Timestamp,
    ) -> Result<Option<AccountId>> {
        match self {
            Self::Sqlite(db) => {
                db.write(move |conn| sqlite::accounts::insert(conn, &email, password.as_ref(), now)).await
            }
            Self::Postgres(db) => postgres::accounts::insert(db, &email, password.as_ref(), now).await,
        }
    }

    pub async fn find_account(&self, email: &Email) -> Result<Option<Account>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::accounts::find(conn, email)),
            Self::Postgres(db) => postgres::accounts::find(db, email).await,
        }
    }

    pub async fn create_key(&self, key: NewKey) -> Result<KeyId> {
        match self {
            Self::Sqlite(db) => db.write_steps(move |conn| sqlite::keys::insert(conn, &key)).await,
            Self::Postgres(db) => postgres::keys::insert(db, &key).await,
        }
    }

    /// All keys, in the order they were made.
    pub async fn list_keys(&self) -> Result<Vec<KeyRecord>> {
        match self {
            Self::Sqlite(db) => db.read(sqlite::keys::list),
            Self::Postgres(db) => postgres::keys::list(db).await,
        }
    }

    /// What the key with this hash grants; nothing where it is unknown or revoked. Expiry is the caller's to check.
    pub async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyGrant>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::keys::find(conn, hash)),
            Self::Postgres(db) => postgres::keys::find(db, hash).await,
        }
    }

    /// Revokes a key at `now`; returns whether there is such a key. One revoked before stays as it was.
    pub async fn revoke_key(&self, id: KeyId, now: Timestamp) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.write_steps(move |conn| sqlite::keys::revoke(conn, id, now)).await,
            Self::Postgres(db) => postgres::keys::revoke(db, id, now).await,
        }
    }

    /// Gives a key a successor with its account, name and lifetime. Returns the successor's id,
    /// or nothing where the key is unknown, revoked or expired.
    pub async fn rotate_key(&self, id: KeyId, rotation: Rotation) -> Result<Option<KeyId>> {
        match self {
            Self::Sqlite(db) => db.write_steps(move |conn| sqlite::keys::rotate(conn, id, &rotation)).await,
            Self::Postgres(db) => postgres::keys::rotate(db, id, &rotation).await,
        }
    }

    /// Notes when keys were last used.
    pub async fn touch_keys(&self, used: Vec<(KeyId, Timestamp)>) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.write_steps(move |conn| sqlite::keys::touch(conn, &used)).await,
            Self::Postgres(db) => postgres::keys::touch(db, &used).await,
        }
    }

    /// Grows with every key that is made or changed, by whichever process.
    pub async fn keys_version(&self) -> Result<i64> {
        match self {
            Self::Sqlite(db) => db.read(sqlite::keys::version),
            Self::Postgres(db) => postgres::keys::version(db).await,
        }
    }

    /// Waits until the database says by itself that a key was made or changed; for ever where it does not.
    pub async fn keys_changed(&self) {
        match self {
            Self::Sqlite(_) => std::future::pending().await,
            Self::Postgres(db) => db.keys_changed().await,
        }
    }

    /// What reads would see now: equal versions mean that nothing was committed between them, by any process.
    /// Nothing where that can't be told without a query.
    pub fn version(&self) -> Option<Version> {
        match self {
            Self::Sqlite(db) => db.version(),
            Self::Postgres(_) => None,
        }
    }

    /// Whether reads and writes are possible, as far as can be told without writing.
    pub async fn check(&self) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.check(),
            Self::Postgres(db) => db.check().await,
        }
    }

    /// Waits until the store can't go on and the process must end; says why.
    pub async fn failed(&self) -> String {
        match self {
            Self::Sqlite(db) => db.failed().await,
            // Whatever is wrong with the server, the connections mend themselves once it is right again.
            Self::Postgres(_) => std::future::pending().await,
        }
    }

    /// Finishes what was queued and closes the database. Later calls answer [`StoreError::Unavailable`].
    pub async fn close(&self) {
        match self {
            Self::Sqlite(db) => db.close().await,
            Self::Postgres(db) => db.close().await,
        }
    }
}
