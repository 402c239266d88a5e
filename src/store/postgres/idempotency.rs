//! Writes with a key, each of which is carried out once, however many processes are asked for it.
//!
//! A batch is a transaction: it takes the keys, carries out the writes of those that are new, and keeps their answers.
//! Taking a key never waits. A transaction first tries to take an advisory lock with the key's number; if another
//! transaction holds that lock, the key is in progress there. The table's primary key makes the writes happen once, not
//! the lock.
//!
//! From its write to its commit, a transaction locks the rows it writes, and holds the lock that orders ids
//! (`pets::INSERT`). Other processes wait for these locks. If the process hangs there, PostgreSQL ends its transaction
//! after half a second ([`BEGIN`]).
//!
//! An answer that is found must itself be safe: the transaction that kept it may have lost its wait for the standby,
//! and then the row is there to be read all the same. So taking a key that was used before locks its row. That is a
//! change of its own, which stands behind the row's in the log, and whose commit waits for the standby like any other.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

use super::Postgres;
use super::batch_writer::{Write, Writer};
use super::connection::PreparedConnection;
use crate::domain::idempotency::KEPT_FOR;
use crate::domain::{Answer, KeyedRequest, Message, NewPet, Outcome, Pet, Timestamp};
use crate::store::{AnswerTo, Result};

/// How long a key that is in progress is waited for, and how long between two looks.
const IN_PROGRESS_TIMEOUT: Duration = Duration::from_millis(200);
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// A lock for each key comes from a table of the server's with room for 6,400, unless it was told otherwise.
const AT_ONCE: usize = 128;

/// Begins a transaction. The isolation level lets each statement see everything that was committed before it. The timeout
/// bounds how long a process that hangs, or has lost its network, delays others.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '500ms'";

/// Takes keys that are new or whose record has expired, and locks the rows of others. Returns the keys taken and, with
/// `busy`, those that are in progress elsewhere.
const TAKE: &str = "WITH given AS MATERIALIZED (
        SELECT key_hash, account_id, fingerprint, expires_at, pg_try_advisory_xact_lock(number) AS held
        FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[])
            AS given (key_hash, account_id, fingerprint, expires_at, number)
    ), taken AS (
        INSERT INTO idempotency_records AS kept (key_hash, account_id, fingerprint, expires_at, status, body)
        SELECT key_hash, account_id, fingerprint, expires_at, 0, '' FROM given WHERE held
        ON CONFLICT (key_hash) DO UPDATE
        SET fingerprint = excluded.fingerprint, expires_at = excluded.expires_at, location = NULL
        WHERE kept.expires_at <= excluded.expires_at - $6::bigint
        RETURNING key_hash
    ) SELECT key_hash, false AS busy FROM taken UNION ALL SELECT key_hash, true FROM given WHERE NOT held";

const FIND: &str = "SELECT key_hash, fingerprint, status, location, body
    FROM unnest($1::bytea[]) AS asked (key_hash) JOIN idempotency_records USING (key_hash)";

const KEEP: &str = "UPDATE idempotency_records AS kept
    SET status = given.status, location = given.location, body = given.body
    FROM unnest($1::bytea[], $2::smallint[], $3::text[], $4::bytea[]) AS given (key_hash, status, location, body)
    WHERE kept.key_hash = given.key_hash";

/// Several processes share the work: what one is at, the others leave out. By where the rows are, which they keep while
/// they are locked: joined by their key, a plan that is made once may read the whole table.
const DELETE_EXPIRED: &str = "DELETE FROM idempotency_records WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM idempotency_records WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2
        FOR UPDATE SKIP LOCKED)) RETURNING 1";

/// Where an operation refused a request, its key is as if it had not been used.
const GIVE_BACK: &str = "DELETE FROM idempotency_records WHERE key_hash = ANY ($1::bytea[])";

/// Statements prepared on the connection for single writes.
pub const WRITES: &[&str] = &[DELETE_EXPIRED];

/// A write that a key can be used for.
pub trait Effect: Send + Sync + Sized + 'static {
    /// Why it can be refused.
    type Refusal: Send + 'static;

    /// How many of them share a transaction at most.
    const AT_ONCE: usize = AT_ONCE;

    /// The statements of `carry_out`, which are prepared when its connection opens.
    fn statements() -> Vec<&'static str>;

    /// About how much it adds to a statement.
    fn bytes(&self) -> usize;

    /// Carries all of them out, within a transaction, and makes their answers, in their order.
    fn carry_out(
        prepared: &PreparedConnection,
        batch: &[&Self],
    ) -> impl Future<Output = std::result::Result<Vec<Answered<Self>>, Error>> + Send;
}

/// The answer to a write, or why it was refused.
pub type Answered<E> = std::result::Result<Answer, <E as Effect>::Refusal>;

/// A write and the key it came with.
pub struct Keyed<E>(Arc<(KeyedRequest, E)>);

impl<E> std::fmt::Debug for Keyed<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Keyed").field(&self.0.0).finish()
    }
}

/// Carries out `effect` unless the request's key was used before.
pub async fn once<E: Effect>(
    writer: &Writer<Keyed<E>>,
    request: KeyedRequest,
    effect: E,
) -> Result<Outcome<E::Refusal>> {
    let keyed = Arc::new((request, effect));
    let until = Instant::now() + IN_PROGRESS_TIMEOUT;
    loop {
        match writer.submit(Keyed(Arc::clone(&keyed))).await? {
            Outcome::InProgress if Instant::now() < until => sleep(RETRY_INTERVAL).await,
            outcome => return Ok(outcome),
        }
    }
}

/// Deletes at most `limit` of the responses stored until `now`, oldest first, and returns how many it deleted.
pub async fn delete_expired(db: &Postgres, now: Timestamp, limit: u32) -> Result<u64> {
    let parameters: [&(dyn ToSql + Sync); 2] = [&now.as_milliseconds(), &i64::from(limit)];
    Ok(db.write(DELETE_EXPIRED, &parameters).await?.len() as u64)
}

impl<E: Effect> Write for Keyed<E> {
    type Answer = Outcome<E::Refusal>;

    const AT_ONCE: usize = E::AT_ONCE;

    fn bytes(&self) -> usize {
        self.0.1.bytes()
    }

    fn statements() -> Vec<&'static str> {
        [vec![TAKE, FIND, KEEP, GIVE_BACK], E::statements()].concat()
    }

    async fn run(prepared: &PreparedConnection, batch: &[Self]) -> std::result::Result<Vec<Self::Answer>, Error> {
        let outcomes = transact(prepared, batch).await;
        if outcomes.is_err() {
            // Where it can't be sent, the connection is gone, and the transaction with it.
            let _ = prepared.connection.client.batch_execute("ROLLBACK").await;
        }
        outcomes
    }
}

async fn transact<E: Effect>(
    prepared: &PreparedConnection,
    batch: &[Keyed<E>],
) -> std::result::Result<Vec<Outcome<E::Refusal>>, Error> {
    let client = &prepared.connection.client;
    // Of several with one key in a batch, the first is carried out. The others find its answer in the next batch; where it
    // is there already, all of them get it.
    let mut positions: HashMap<_, Vec<usize>> = HashMap::with_capacity(batch.len());
    for (position, Keyed(keyed)) in batch.iter().enumerate() {
        positions.entry(&keyed.0.key_hash[..]).or_default().push(position);
    }
    let mut outcomes: Vec<_> = batch.iter().map(|_| Outcome::InProgress).collect();

    let asked: Vec<_> = positions.values().map(|same| &batch[same[0]].0.0).collect();
    let keys: Vec<_> = asked.iter().map(|request| &request.key_hash[..]).collect();
    let accounts: Vec<_> = asked.iter().map(|request| request.account.0).collect();
    let fingerprints: Vec<_> = asked.iter().map(|request| &request.fingerprint[..]).collect();
    let expiries: Vec<_> = asked.iter().map(|request| request.expires_at().as_milliseconds()).collect();
    let numbers: Vec<_> = asked.iter().map(|request| lock_number(request)).collect();
    let lifetime = i64::try_from(KEPT_FOR.as_millis()).expect("a day in milliseconds");
    let parameters: [&(dyn ToSql + Sync); 6] = [&keys, &accounts, &fingerprints, &expiries, &numbers, &lifetime];
    let taking = prepared.query(TAKE, &parameters);
    let (begun, taken) = tokio::join!(client.batch_execute(BEGIN), taking);
    begun?;
    let mut new = Vec::with_capacity(batch.len());
    for row in &taken? {
        if let Some(same) = positions.remove(row.try_get::<_, &[u8]>(0)?)
            && !row.try_get(1)?
        {
            new.push(same[0]);
        }
    }

    // What is left was used before.
    if !positions.is_empty() {
        let keys: Vec<_> = positions.keys().copied().collect();
        for row in &prepared.query(FIND, &[&keys]).await? {
            for &position in positions.get(row.try_get::<_, &[u8]>(0)?).into_iter().flatten() {
                outcomes[position] = if row.try_get::<_, &[u8]>(1)? == batch[position].0.0.fingerprint {
                    let status = u16::try_from(row.try_get::<_, i16>(2)?).unwrap_or(500);
                    Outcome::Again(Answer { status, location: row.try_get(3)?, body: row.try_get(4)? })
                } else {
                    Outcome::Reused
                };
            }
        }
    }

    if new.is_empty() {
        client.batch_execute("COMMIT").await?;
        return Ok(outcomes);
    }
    // In the order they came, so that ids grow in it.
    new.sort_unstable();
    let effects: Vec<_> = new.iter().map(|&position| &batch[position].0.1).collect();
    let answers = E::carry_out(prepared, &effects).await?;
    if answers.len() != effects.len() {
        // Which is whose can't be told. The writer reports a batch that was not answered.
        client.batch_execute("ROLLBACK").await?;
        return Ok(Vec::new());
    }
    let (mut kept, mut refused) = (Vec::with_capacity(new.len()), Vec::new());
    for (position, answered) in new.into_iter().zip(answers) {
        match answered {
            Ok(answer) => kept.push((position, answer)),
            Err(refusal) => {
                refused.push(&batch[position].0.0.key_hash[..]);
                outcomes[position] = Outcome::Refused(refusal);
            }
        }
    }
    if !refused.is_empty() {
        prepared.execute(GIVE_BACK, &[&refused]).await?;
    }
    let keys: Vec<_> = kept.iter().map(|(position, _)| &batch[*position].0.0.key_hash[..]).collect();
    let statuses: Vec<_> = kept.iter().map(|(_, answer)| answer.status.cast_signed()).collect();
    let locations: Vec<_> = kept.iter().map(|(_, answer)| answer.location.as_deref()).collect();
    let bodies: Vec<_> = kept.iter().map(|(_, answer)| &*answer.body).collect();
    let parameters: [&(dyn ToSql + Sync); 4] = [&keys, &statuses, &locations, &bodies];
    let keeping = prepared.execute(KEEP, &parameters);
    let (keeping, committed) = tokio::join!(keeping, client.batch_execute("COMMIT"));
    // Where an answer could not be kept, the commit was none.
    keeping.and(committed)?;
    for (position, answer) in kept {
        outcomes[position] = Outcome::First(answer);
    }
    Ok(outcomes)
}

/// Two keys with the same number, of 2^64, would wait for each other, and nothing worse.
fn lock_number(request: &KeyedRequest) -> i64 {
    let (number, _) = request.key_hash.split_first_chunk().expect("a hash has more than eight bytes");
    i64::from_be_bytes(*number)
}

pub struct CreatePet {
    pub pet: NewPet,
    pub answer: AnswerTo<Pet>,
}

impl Effect for CreatePet {
    type Refusal = Infallible;

    fn bytes(&self) -> usize {
        self.pet.bytes()
    }

    fn statements() -> Vec<&'static str> {
        NewPet::statements()
    }

    async fn carry_out(
        prepared: &PreparedConnection,
        batch: &[&Self],
    ) -> std::result::Result<Vec<Answered<Self>>, Error> {
        let pets: Vec<_> = batch.iter().map(|create| create.pet.clone()).collect();
        let ids = NewPet::run(prepared, &pets).await?;
        let created = pets.into_iter().zip(ids).map(|(pet, id)| pet.with_id(id));
        Ok(batch.iter().zip(created).map(|(create, pet)| Ok((create.answer)(&pet))).collect())
    }
}

pub struct CreateMessage {
    pub message: Message,
    pub answer: Answer,
}

impl Effect for CreateMessage {
    type Refusal = Infallible;

    fn bytes(&self) -> usize {
        self.message.bytes()
    }

    fn statements() -> Vec<&'static str> {
        Message::statements()
    }

    async fn carry_out(
        prepared: &PreparedConnection,
        batch: &[&Self],
    ) -> std::result::Result<Vec<Answered<Self>>, Error> {
        let messages: Vec<_> = batch.iter().map(|create| create.message.clone()).collect();
        Message::run(prepared, &messages).await?;
        Ok(batch.iter().map(|create| Ok(create.answer.clone())).collect())
    }
}
