//! Writes with idempotency keys, each carried out once by any number of processes.
//!
//! A batch is a transaction: it claims the keys, carries out the writes whose keys are new, and stores their responses.
//! Claiming a key never waits. The transaction first tries to take an advisory lock with the key's number. If another
//! transaction holds that lock, the key is in progress there. The table's primary key guarantees a single execution, not
//! the lock.
//!
//! From its write to its commit, a transaction locks the rows it writes, and holds the lock that orders ids
//! (`INSERT` of `pets/postgres.rs`, `PLACE` of `orders/postgres.rs`). Other processes wait for these locks. If the process
//! hangs there, PostgreSQL ends its transaction (`idle_in_transaction_session_timeout`).
//!
//! A stored response must be durable before it is replayed. The transaction that stored it may have lost its wait for the
//! standby, which leaves the row visible. Claiming a used key therefore locks its row. The lock is a change of its own,
//! behind the row's in the log, and its commit waits for the standby too.

use std::collections::HashMap;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::write::{Write, WriteOutcome, WriteResult};
use crate::domain::KeyedRequest;
use crate::domain::idempotency::RETENTION;
use crate::store::{Outcome, StoredResponse, WriteKey};
use postgres_group_commit::PreparedConnection;

type Result<T> = std::result::Result<T, Error>;

/// Claims keys that are new or whose record has expired, and locks the rows of the others. Returns the claimed keys and,
/// with `busy`, those that are in progress elsewhere. Keys of a deleted account are neither.
const CLAIM: &str = "WITH given AS MATERIALIZED (
        SELECT key_hash, account_id, fingerprint, expires_at, pg_try_advisory_xact_lock(number) AS held
        FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[])
            AS given (key_hash, account_id, fingerprint, expires_at, number)
    ), taken AS (
        INSERT INTO idempotency_records AS kept (key_hash, account_id, fingerprint, expires_at, status, body)
        SELECT key_hash, account_id, fingerprint, expires_at, 0, ''
        FROM given JOIN accounts ON accounts.id = account_id WHERE held AND deleted_at IS NULL FOR KEY SHARE OF accounts
        ON CONFLICT (key_hash) DO UPDATE
        SET fingerprint = excluded.fingerprint, expires_at = excluded.expires_at, location = NULL
        WHERE kept.expires_at <= excluded.expires_at - $6::bigint
        RETURNING key_hash
    ) SELECT key_hash, false AS busy FROM taken UNION ALL SELECT key_hash, true FROM given WHERE NOT held";

const FIND: &str = "SELECT key_hash, fingerprint, status, location, body
    FROM unnest($1::bytea[]) AS asked (key_hash) JOIN idempotency_records USING (key_hash)";

const STORE: &str = "UPDATE idempotency_records AS kept
    SET status = given.status, location = given.location, body = given.body
    FROM unnest($1::bytea[], $2::smallint[], $3::text[], $4::bytea[]) AS given (key_hash, status, location, body)
    WHERE kept.key_hash = given.key_hash";

/// Releases the keys of refused writes, as if they had not been used.
const RELEASE: &str = "DELETE FROM idempotency_records WHERE key_hash = ANY ($1::bytea[])";

/// Statements of a batch with keys, besides those of its writes.
const BATCH: &[&str] = &[CLAIM, FIND, STORE, RELEASE];

/// A write that may have a key. A queue that does not take keys has larger batches.
pub struct Keyed<W: Write, const TAKES_KEYS: bool>(pub W, pub Option<WriteKey<W::Output>>);

impl<W: Write, const TAKES_KEYS: bool> postgres_group_commit::Write for Keyed<W, TAKES_KEYS> {
    type Output = WriteOutcome<W>;

    const BATCH: usize = if TAKES_KEYS { W::KEYED_BATCH } else { 512 };

    fn statements() -> Vec<&'static str> {
        if TAKES_KEYS { [BATCH, W::STATEMENTS].concat() } else { W::STATEMENTS.to_vec() }
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    async fn run(prepared: &PreparedConnection, batch: Vec<Self>) -> Result<Vec<Self::Output>> {
        if !TAKES_KEYS || batch.iter().all(|Self(_, key)| key.is_none()) {
            let results = W::run(prepared, batch.into_iter().map(|Self(write, _)| write).collect()).await?;
            return Ok(results.into_iter().map(Outcome::from).collect());
        }
        debug_assert!(prepared.is_prepared(), "COMMIT follows STORE at once, so STORE must be prepared");
        let outcomes = transact(prepared, batch).await;
        if outcomes.is_err() {
            // If this cannot be sent, the connection is lost, and the transaction with it.
            let _ = prepared.connection.client.batch_execute("ROLLBACK").await;
        }
        outcomes
    }
}

/// Carries out a batch that has writes with keys. Writes without a key share its transaction.
async fn transact<W: Write, const TAKES_KEYS: bool>(
    prepared: &PreparedConnection,
    batch: Vec<Keyed<W, TAKES_KEYS>>,
) -> Result<Vec<WriteOutcome<W>>> {
    let known = claim(prepared, &batch).await?;
    // In order of arrival, which is the order of ids.
    let new = batch.into_iter().zip(&known).filter(|(_, outcome)| outcome.is_none());
    let (writes, keys): (Vec<_>, Vec<_>) = new.map(|(Keyed(write, key), _)| (write, key)).unzip();
    let client = &prepared.connection.client;
    if writes.is_empty() {
        client.batch_execute("COMMIT").await?;
        return Ok(known.into_iter().flatten().collect());
    }
    let results = W::run(prepared, writes).await?;
    if results.len() != keys.len() {
        // The results cannot be assigned. The writer reports the missing outcomes.
        client.batch_execute("ROLLBACK").await?;
        return Ok(Vec::new());
    }
    store_and_commit::<W>(prepared, &keys, &results).await?;
    let mut results = results.into_iter();
    Ok(known.into_iter().filter_map(|outcome| outcome.or_else(|| Some(results.next()?.into()))).collect())
}

/// Begins the transaction and claims the keys of its batch. Returns an outcome for each write, in order: `None` if the write
/// is to be carried out, because its key was claimed or it has none.
async fn claim<W: Write, const TAKES_KEYS: bool>(
    prepared: &PreparedConnection,
    batch: &[Keyed<W, TAKES_KEYS>],
) -> Result<Vec<Option<WriteOutcome<W>>>> {
    let client = &prepared.connection.client;
    let mut outcomes = Vec::with_capacity(batch.len());
    // If several writes of a batch have the same key, the first is carried out and the others are tried again.
    let mut requests: HashMap<&[u8], Vec<(usize, &KeyedRequest)>> = HashMap::with_capacity(batch.len());
    for (position, Keyed(_, key)) in batch.iter().enumerate() {
        outcomes.push(key.as_ref().map(|_| Outcome::InProgress));
        if let Some(WriteKey { request, .. }) = key {
            requests.entry(&request.key_hash).or_default().push((position, request));
        }
    }

    let (keys, accounts, fingerprints, expiries, numbers): (Vec<_>, Vec<_>, Vec<_>, Vec<_>, Vec<_>) = requests
        .values()
        .map(|same| {
            let request = same[0].1;
            let (key, fingerprint) = (&request.key_hash[..], &request.fingerprint[..]);
            (key, request.account, fingerprint, request.expires_at(), lock_number(request))
        })
        .collect();
    let retention = i64::try_from(RETENTION.as_millis()).expect("a day in milliseconds");
    let parameters: [&(dyn ToSql + Sync); 6] = [&keys, &accounts, &fingerprints, &expiries, &numbers, &retention];
    let (begun, claimed) = tokio::join!(client.batch_execute("BEGIN"), prepared.query(CLAIM, &parameters));
    begun?;
    for row in &claimed? {
        let (key, busy): (&[u8], bool) = (row.try_get(0)?, row.try_get(1)?);
        if let Some(same) = requests.remove(key)
            && !busy
        {
            outcomes[same[0].0] = None;
        }
    }

    // The remaining keys were used before.
    if !requests.is_empty() {
        let keys: Vec<_> = requests.keys().copied().collect();
        for row in &prepared.query(FIND, &[&keys]).await? {
            for (position, request) in requests.get(row.try_get::<_, &[u8]>(0)?).into_iter().flatten() {
                outcomes[*position] = Some(repeated::<W>(request, row)?);
            }
        }
    }
    Ok(outcomes)
}

/// The outcome of a request whose key has the stored response `row`.
fn repeated<W: Write>(request: &KeyedRequest, row: &Row) -> Result<WriteOutcome<W>> {
    let fingerprint: &[u8] = row.try_get(1)?;
    if fingerprint != request.fingerprint {
        return Ok(Outcome::KeyMismatch);
    }
    let status = u16::try_from(row.try_get::<_, i16>(2)?).unwrap_or(500);
    Ok(Outcome::Replayed(StoredResponse { status, location: row.try_get(3)?, body: row.try_get(4)? }))
}

/// Stores the responses of the writes that were carried out, releases the keys of those that were refused, and commits.
async fn store_and_commit<W: Write>(
    prepared: &PreparedConnection,
    keys: &[Option<WriteKey<W::Output>>],
    results: &[WriteResult<W>],
) -> Result<()> {
    let client = &prepared.connection.client;
    let (mut stored, mut responses, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for (key, result) in keys.iter().zip(results) {
        let Some(key) = key else { continue };
        match result {
            Ok(output) => {
                stored.push(&key.request.key_hash[..]);
                responses.push(key.response(output));
            }
            Err(_) => refused.push(&key.request.key_hash[..]),
        }
    }
    if !refused.is_empty() {
        prepared.query(RELEASE, &[&refused]).await?;
    }
    let (statuses, locations, bodies): (Vec<_>, Vec<_>, Vec<_>) = responses
        .iter()
        .map(|response| (response.status.cast_signed(), response.location.as_deref(), &*response.body))
        .collect();
    let parameters: [&(dyn ToSql + Sync); 4] = [&stored, &statuses, &locations, &bodies];
    let (stored, committed) = tokio::join!(prepared.query(STORE, &parameters), client.batch_execute("COMMIT"));
    // If a response could not be stored, the commit was a rollback.
    stored.and(committed)
}

/// Number of a key's advisory lock. Two keys with the same number, of 2^64, would only wait for each other.
fn lock_number(request: &KeyedRequest) -> i64 {
    let (number, _) = request.key_hash.split_first_chunk().expect("a hash has more than eight bytes");
    i64::from_be_bytes(*number)
}
