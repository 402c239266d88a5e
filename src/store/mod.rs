//! Everything that is kept, behind one type. A method is one business operation and its own transaction;
//! connections and transactions never leave this module.
//!
//! The set of databases is closed, so it is an enum and not a trait: a missing arm does not compile.

mod backup_status;
mod deployment;
mod error;
mod message_query;
mod meters;
mod migrations;
pub mod moving;
pub mod postgres;
pub mod sqlite;

pub use backup_status::BackupStatus;
pub use error::StoreError;
pub use meters::{Disk, Meters, ReaderMeter, WriterMeter};
pub use migrations::MigrationStatus;
use postgres::Postgres;
pub use sqlite::Version;
use sqlite::{Batch, Sqlite};

use crate::domain::account::PasswordDigest;
use crate::domain::api_key::{KeyGrant, NewKey, Rotation};
use crate::domain::order::{NotPlaced, NotTaken, Placing, Stepping};
use crate::domain::session::NewSession;
use crate::domain::{
    Account, AccountId, Answer, Deployment, Email, KeyHash, KeyId, KeyRecord, KeyedRequest, Message, MessageId,
    MessageQuery, MessageRecord, NewOrder, NewPet, Order, OrderQuery, OrderStep, Outcome, Pet, PetQuery, PetRef,
    Session, SessionHash, StatusCounts, Timestamp,
};

pub type Result<T> = std::result::Result<T, StoreError>;

/// A stream of animals to take in: it ends at the first error, and then nothing of it is kept.
pub type PetSource = Box<dyn Iterator<Item = std::result::Result<NewPet, String>> + Send>;

/// Makes the answer to a request from what it brought about.
pub type AnswerTo<T> = Box<dyn Fn(&T) -> Answer + Send + Sync>;

/// What makes a process the one that relays messages; given back by dropping it. Each database uses a part of its own.
#[derive(Debug, Default)]
pub struct RelayLease {
    lock: Option<std::fs::File>,
    session: Option<postgres::outbox::LeaseSession>,
}

/// What the hot path calls on PostgreSQL is boxed, so that the other arm's futures stay small.
#[derive(Debug)]
pub enum Store {
    Sqlite(Sqlite),
    /// In a box, since it is much larger than the other arm.
    Postgres(Box<Postgres>),
}

impl Store {
    /// What the database was made for.
    pub fn deployment(&self) -> Deployment {
        match self {
            Self::Sqlite(db) => db.deployment(),
            Self::Postgres(db) => db.deployment(),
        }
    }

    /// Which database it is, and its version, for people.
    pub fn database(&self) -> String {
        match self {
            Self::Sqlite(_) => format!("SQLite {}", rusqlite::version()),
            Self::Postgres(db) => format!("PostgreSQL {}", db.server_version()),
        }
    }

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

    /// Reads an index from end to end: a tenth of a second for a million animals.
    pub async fn count_pets_by_status(&self) -> Result<StatusCounts> {
        match self {
            Self::Sqlite(db) => db.read(sqlite::pets::count_by_status),
            Self::Postgres(db) => postgres::pets::count_by_status(db).await,
        }
    }

    /// Places an order and reserves its animal, where that is available.
    pub async fn place_order(&self, order: NewOrder) -> Result<Placing> {
        match self {
            Self::Sqlite(db) => db.write_together(move |batch| sqlite::orders::place(batch, &order)).await,
            Self::Postgres(db) => Box::pin(db.place_order(order)).await,
        }
    }

    /// The same, unless the request's key was used before: the order and the answer to it are kept together or not at all.
    pub async fn place_order_once(
        &self,
        request: KeyedRequest,
        order: NewOrder,
        answer: AnswerTo<Order>,
    ) -> Result<Outcome<NotPlaced>> {
        match self {
            Self::Sqlite(db) => {
                let place =
                    move |batch: &Batch<'_>| Ok(sqlite::orders::place(batch, &order)?.map(|order| answer(&order)));
                db.write_steps(move |batch| sqlite::idempotency::once(batch, &request, place)).await
            }
            Self::Postgres(db) => Box::pin(db.place_order_once(request, order, answer)).await,
        }
    }

    /// Shows `each` the orders of `account` that are asked for, in order of their ids; says whether more of them follow.
    pub async fn list_orders(
        &self,
        account: AccountId,
        query: &OrderQuery,
        each: &mut (dyn FnMut(Order) + Send),
    ) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::orders::list(conn, account, query, each)),
            Self::Postgres(db) => Box::pin(postgres::orders::list(db, account, query, each)).await,
        }
    }

    /// Takes an account's order a step on, and its animal with it.
    pub async fn step_order(&self, account: AccountId, id: i64, step: OrderStep, now: Timestamp) -> Result<Stepping> {
        match self {
            Self::Sqlite(db) => {
                db.write_steps(move |conn| sqlite::orders::take_step(conn, account, id, step, now)).await
            }
            Self::Postgres(db) => postgres::orders::take_step(db, account, id, step, now).await,
        }
    }

    /// The same, unless the request's key was used before: the step and the answer to it are kept together or not at all.
    pub async fn step_order_once(
        &self,
        request: KeyedRequest,
        id: i64,
        step: OrderStep,
        answer: AnswerTo<Order>,
    ) -> Result<Outcome<NotTaken>> {
        match self {
            Self::Sqlite(db) => {
                let (account, now) = (request.account, request.now);
                let step = move |batch: &Batch<'_>| {
                    Ok(sqlite::orders::take_step(batch, account, id, step, now)?.map(|order| answer(&order)))
                };
                db.write_steps(move |batch| sqlite::idempotency::once(batch, &request, step)).await
            }
            Self::Postgres(db) => Box::pin(db.step_order_once(request, id, step, answer)).await,
        }
    }

    /// Takes a message on; durable once this returns.
    pub async fn create_message(&self, message: Message) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.write(move |batch| sqlite::messages::insert(batch, &message)).await,
            Self::Postgres(db) => Box::pin(db.create_message(message)).await,
        }
    }

    /// The same, unless the request's key was used before: the message and the answer to it are kept together or not at
    /// all.
    pub async fn create_message_once(
        &self,
        request: KeyedRequest,
        message: Message,
        answer: Answer,
    ) -> Result<Outcome> {
        match self {
            Self::Sqlite(db) => {
                let insert = move |batch: &Batch<'_>| sqlite::messages::insert(batch, &message).map(|()| Ok(answer));
                db.write_steps(move |batch| sqlite::idempotency::once(batch, &request, insert)).await
            }
            Self::Postgres(db) => Box::pin(db.create_message_once(request, message, answer)).await,
        }
    }

    /// Deletes at most `limit` of the answers that were kept until `now`, oldest first; returns how many these were.
    pub async fn delete_expired_answers(&self, now: Timestamp, limit: u32) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.write(move |conn| sqlite::idempotency::delete_expired(conn, now, limit)).await,
            Self::Postgres(db) => db.delete_expired_answers(now, limit).await,
        }
    }

    /// At most `limit` of an account's messages, newest first, those before `before`; and whether more follow.
    pub async fn list_messages_of(
        &self,
        account: AccountId,
        before: Option<MessageId>,
        limit: u32,
    ) -> Result<(Vec<Message>, bool)> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::messages::list_of(conn, account, before, limit)),
            Self::Postgres(db) => postgres::messages::list_of(db, account, before, limit).await,
        }
    }

    /// Takes the right to relay messages, or makes sure of it, which whoever has it does every few seconds; false where
    /// another process has it. The first time on a database it indexes the messages there are.
    pub async fn hold_relay_lease(&self, lease: &mut RelayLease) -> Result<bool> {
        match self {
            Self::Sqlite(db) => sqlite::outbox::hold(db, &mut lease.lock).await,
            Self::Postgres(db) => postgres::outbox::hold(db, &mut lease.session).await,
        }
    }

    /// At most `limit` messages that no broker has acknowledged, in order of their ids, those after `after`. Only for who
    /// has the lease.
    pub async fn unsent_messages(&self, after: Option<MessageId>, limit: u32) -> Result<Vec<Message>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::outbox::unsent(conn, after, limit)),
            Self::Postgres(db) => postgres::outbox::unsent(db, after, limit).await,
        }
    }

    /// How many messages no broker has acknowledged; counts no further than `up_to`.
    pub async fn count_unsent_messages(&self, up_to: u32) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::outbox::count_unsent(conn, up_to)),
            Self::Postgres(db) => postgres::outbox::count_unsent(db, up_to).await,
        }
    }

    /// Notes that a broker has acknowledged these messages.
    pub async fn mark_messages_sent(&self, messages: Vec<(AccountId, MessageId)>, now: Timestamp) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.write_together(move |batch| sqlite::outbox::mark_sent(batch, &messages, now)).await,
            Self::Postgres(db) => postgres::outbox::mark_sent(db, &messages, now).await,
        }
    }

    /// Deletes at most `limit` of the messages that were sent before `before`, oldest first; returns how many these were.
    pub async fn delete_sent_messages(&self, before: Timestamp, limit: u32) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.write_together(move |batch| sqlite::outbox::delete_sent(batch, before, limit)).await,
            Self::Postgres(db) => postgres::outbox::delete_sent(db, before, limit).await,
        }
    }

    /// Shows `each` the messages asked for, as of one moment; stops at the first error it returns. Takes long.
    pub async fn export_messages(
        &self,
        query: &MessageQuery,
        each: &mut (dyn FnMut(MessageRecord) -> std::io::Result<()> + Send),
    ) -> Result<std::io::Result<u64>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::outbox::export(conn, query, each)),
            Self::Postgres(db) => postgres::outbox::export(db, query, each).await,
        }
    }

    pub async fn count_messages(&self, query: &MessageQuery) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::outbox::count(conn, query)),
            Self::Postgres(db) => postgres::outbox::count(db, query).await,
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

    /// Whether there is any account, other than deleted ones.
    pub async fn has_accounts(&self) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.read(sqlite::accounts::exist),
            Self::Postgres(db) => postgres::accounts::exist(db).await,
        }
    }

    /// An account and the digest of its password; nothing where the address is unknown or has no password.
    pub async fn find_password(&self, email: &Email) -> Result<Option<(AccountId, PasswordDigest)>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::accounts::find_password(conn, email)),
            Self::Postgres(db) => postgres::accounts::find_password(db, email).await,
        }
    }

    /// Sets a new password, ends every session of the account and begins `session`. Returns whether `checked`, the
    /// digest of the password that was shown, still is the account's; else nothing happens.
    pub async fn change_password(
        &self,
        session: NewSession,
        checked: PasswordDigest,
        new: PasswordDigest,
    ) -> Result<bool> {
        match self {
            Self::Sqlite(db) => {
                db.write_steps(move |conn| sqlite::sessions::change_password(conn, &session, &checked, &new)).await
            }
            Self::Postgres(db) => postgres::sessions::change_password(db, &session, &checked, &new).await,
        }
    }

    /// Forgets an account's address and password, ends its sessions, revokes its keys and cancels its open orders. Its
    /// messages stay, since they were taken on. Returns whether `checked` still is its password's digest; else nothing happens.
    pub async fn delete_account(&self, account: AccountId, checked: PasswordDigest, now: Timestamp) -> Result<bool> {
        match self {
            Self::Sqlite(db) => {
                db.write_steps(move |conn| sqlite::sessions::delete_account(conn, account, &checked, now)).await
            }
            Self::Postgres(db) => postgres::sessions::delete_account(db, account, &checked, now).await,
        }
    }

    /// Begins a session, and forgets those that have ended. Returns whether `checked`, the digest of the password that
    /// was shown, still is the account's; else there is no session.
    pub async fn create_session(&self, session: NewSession, checked: PasswordDigest) -> Result<bool> {
        match self {
            Self::Sqlite(db) => db.write_steps(move |conn| sqlite::sessions::insert(conn, &session, &checked)).await,
            Self::Postgres(db) => postgres::sessions::insert(db, &session, &checked).await,
        }
    }

    /// The session with this hash, whether or not it still lasts.
    pub async fn find_session(&self, hash: &SessionHash) -> Result<Option<Session>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::sessions::find(conn, hash)),
            Self::Postgres(db) => postgres::sessions::find(db, hash).await,
        }
    }

    /// Notes when a session was last used.
    pub async fn touch_session(&self, hash: SessionHash, now: Timestamp) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.write(move |conn| sqlite::sessions::touch(conn, &hash, now)).await,
            Self::Postgres(db) => postgres::sessions::touch(db, &hash, now).await,
        }
    }

    pub async fn delete_session(&self, hash: SessionHash) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.write(move |conn| sqlite::sessions::delete(conn, &hash)).await,
            Self::Postgres(db) => postgres::sessions::delete(db, &hash).await,
        }
    }

    /// Fails with [`StoreError::Refused`] where the account was deleted.
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

    /// At most `limit` of an account's keys, newest first, those before `before`; and whether more follow.
    pub async fn list_keys_of(
        &self,
        account: AccountId,
        before: Option<KeyId>,
        limit: u32,
    ) -> Result<(Vec<KeyRecord>, bool)> {
        let before = before.unwrap_or(KeyId(i64::MAX));
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::keys::list_of(conn, account, before, limit)),
            Self::Postgres(db) => postgres::keys::list_of(db, account, before, limit).await,
        }
    }

    /// One of an account's own keys.
    pub async fn find_key_of(&self, account: AccountId, id: KeyId) -> Result<Option<KeyRecord>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::keys::find_of(conn, account, id)),
            Self::Postgres(db) => postgres::keys::find_of(db, account, id).await,
        }
    }

    /// What the key with this hash grants; nothing where it is unknown or revoked. Expiry is the caller's to check.
    pub async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyGrant>> {
        match self {
            Self::Sqlite(db) => db.read(|conn| sqlite::keys::find(conn, hash)),
            Self::Postgres(db) => Box::pin(postgres::keys::find(db, hash)).await,
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

    /// What it has counted so far.
    pub fn meters(&self) -> Meters<'_> {
        match self {
            Self::Sqlite(db) => db.meters(),
            Self::Postgres(db) => db.meters(),
        }
    }

    /// The disk of the embedded database, where the system tells.
    pub fn disk(&self) -> Option<Disk> {
        match self {
            Self::Sqlite(db) => db.disk(),
            Self::Postgres(_) => None,
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

    /// What came of scheduled backups, where this program makes them.
    pub const fn backups(&self) -> Option<&BackupStatus> {
        match self {
            Self::Sqlite(db) => Some(db.backups()),
            Self::Postgres(_) => None,
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
