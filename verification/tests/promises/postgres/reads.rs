//! Reads on PostgreSQL: how they share queries.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use petstore::domain::Direction::{Ascending, Descending};
use petstore::domain::{KeyHash, MessageId, OrderQuery, OrderStatus, PageLimit, PageQuery, PetQuery, PetStatus};
use petstore::store::postgres::Options;
use testkit::postgres::{OpenTransaction, query, sessions};
use testkit::{TIMEOUT, until, within};

use super::{create, list, open, open_limited};
use crate::fixtures::{NOW, account, key, spawn};

/// The rows that a list must skip are next to each other: those of another status or account.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_read_no_rows_of_another_status_or_account() {
    let (store, url) = open().await;
    account(&store, "ada@lovelace.example").await;
    let grace = account(&store, "grace@hopper.example").await;
    // Without checks of foreign keys, which read rows too.
    query(
        &url,
        "SET session_replication_role = replica;
        INSERT INTO pets (name, category_id, status) SELECT 'Rex', 1, n / 7000 FROM generate_series(1, 20000) n;
        INSERT INTO orders (account_id, pet_id, status, created_at, updated_at)
            SELECT n / 10001 + 1, n, n % 10000 / 2500, 0, 0 FROM generate_series(1, 20000) n;
        INSERT INTO messages (account_id, id, message, created_at)
            SELECT n / 10001 + 1, gen_random_uuid(), 'Hello', 0 FROM generate_series(1, 20000) n;
        INSERT INTO api_keys (account_id, name, hash, hint, created_at)
            SELECT n / 10001 + 1, 'test', sha256(n::text::bytea), 'test', 0 FROM generate_series(1, 20000) n",
    );
    query(&url, "VACUUM ANALYZE");
    let mut rows = 0;
    let mut lists = 0;
    for (direction, after) in
        [(Ascending, None), (Ascending, Some(13_000)), (Descending, None), (Descending, Some(13_000))]
    {
        for status in [None, Some(PetStatus::Pending)] {
            let page = PetQuery { status, after, direction, ..PetQuery::default() };
            store.list_pets(&page, &mut |_| rows += 1).await.unwrap();
        }
        for status in [None, Some(OrderStatus::Approved)] {
            let page = OrderQuery { status, after, direction, ..OrderQuery::default() };
            store.list_orders(Some(grace), &page, &mut |_| rows += 1).await.unwrap();
        }
        let page = PageQuery { after, direction, ..PageQuery::default() };
        rows += store.list_keys_of(grace, &page, NOW).await.unwrap().0.len();
        let message = after.and_then(|_| MessageId::parse("msg_80000000000000000000000000000000"));
        let (messages, _) = store.list_messages_of(grace, direction, message, PageLimit::default()).await.unwrap();
        rows += messages.len();
        lists += 6;
    }
    assert_eq!(rows, lists * 20);
    store.close().await;
    // A session has reported what it read by its end.
    within(TIMEOUT, "closing", || sessions(&url, "application_name = 'petstore'") == 0);
    let read =
        "SELECT sum(seq_tup_read) + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes) FROM pg_stat_user_tables";
    let read = query(&url, read).parse::<usize>().unwrap();
    // Each list reads one row more than its page. The accounts of keys are read too.
    assert!((lists * 21..lists * 30).contains(&read), "{read} rows read for {rows} in {lists} lists");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_share_a_query_get_their_own_pages() {
    let (store, url) = open().await;
    query(&url, "INSERT INTO pets (name, category_id, status) SELECT 'Rex', 1, n % 3 FROM generate_series(0, 299) n");
    let lists = (0..100).map(|n: i64| {
        spawn(&store, move |store| async move {
            let status = [None, Some(PetStatus::Available), Some(PetStatus::Sold)][n as usize % 3];
            let direction = if n % 2 == 0 { Ascending } else { Descending };
            let page = PetQuery { status, after: Some(3 * n), direction, limit: PageLimit::new(n % 7 + 1).unwrap() };
            let mut found = Vec::new();
            let more = store.list_pets(&page, &mut |pet| found.push(pet.id)).await.unwrap();
            let follows = |id: &i64| if n % 2 == 0 { *id > 3 * n } else { *id < 3 * n };
            let is_listed = |id: &i64| status.is_none_or(|status| (id - 1) % 3 == i64::from(status.code()));
            let mut expected: Vec<_> = (1..=300).filter(|id| follows(id) && is_listed(id)).collect();
            if n % 2 != 0 {
                expected.reverse();
            }
            let limit = n as usize % 7 + 1;
            assert_eq!(more, expected.len() > limit);
            expected.truncate(limit);
            assert_eq!(found, expected);
        })
    });
    try_join_all(lists).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_read_of_a_batch_gets_its_own_result() {
    let (store, _) = open().await;
    for n in 1..=100 {
        assert_eq!(create(Arc::clone(&store), format!("animal {n}")).await.unwrap(), n);
    }
    let reads = (0..2_000).map(|n| {
        spawn(&store, move |store| async move {
            // Some ids repeat, and some do not exist.
            let id = n % 130 - 10;
            let found = store.find_pet(id).await.unwrap().map(|pet| pet.name);
            assert_eq!(found, (1..=100).contains(&id).then(|| format!("animal {id}").into()));
        })
    });
    try_join_all(reads).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_reads_share_a_query() {
    let (store, url) = open_limited(|options| Options { readers: 2, ..options }).await;
    create(Arc::clone(&store), "Rex".into()).await.unwrap();
    let operator = OpenTransaction::begin(&url, "LOCK TABLE pets");
    let reads = (0..100).map(|_| {
        spawn(&store, |store| async move {
            assert_eq!(store.find_pet(1).await.unwrap().unwrap().name, "Rex");
            assert_eq!(list(&store, 20, 0).await, [1]);
        })
    });
    let reads: Vec<_> = reads.collect();
    // At most one statement per connection waits at the server.
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'pets'::regclass";
    let mut most = String::new();
    until(async || query(&url, waiting) != "0").await;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(query(&url, waiting));
    }
    assert!(["1", "2"].contains(&most.as_str()), "{most}");
    operator.release();
    try_join_all(reads).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn key_lookups_do_not_delay_other_reads() {
    let (store, url) = open_limited(|options| Options { readers: 2, ..options }).await;
    create(Arc::clone(&store), "Rex".into()).await.unwrap();
    // Lookups wait while this transaction locks the table of keys.
    let operator = OpenTransaction::begin(&url, "LOCK TABLE api_keys");
    let lookup = |n| spawn(&store, move |store| async move { store.find_key(&KeyHash([n; 32])).await });
    let lookups: Vec<_> = (0..100).map(lookup).collect();
    let waiting = || sessions(&url, "wait_event_type = 'Lock'");
    within(TIMEOUT, "looking up a key", || waiting() > 0);
    assert_eq!(waiting(), 1, "all other lookups wait for the next statement");
    for _ in 0..20 {
        assert_eq!(list(&store, 20, 0).await, [1]);
        assert!(store.find_pet(1).await.unwrap().is_some());
    }
    assert_eq!(waiting(), 1, "the table was locked throughout");
    operator.release();
    for lookup in lookups {
        assert!(lookup.await.unwrap().unwrap().is_none());
    }
    assert!(store.find_key(&KeyHash([0; 32])).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_key_of_a_batch_gets_its_own_grant() {
    let (store, _) = open().await;
    let account = account(&store, "ada@example.com").await;
    let (mut hashes, mut ids) = (Vec::new(), HashMap::new());
    for _ in 0..20 {
        let (id, key) = key(&store, account, None).await;
        hashes.push(key.hash());
        ids.insert(key.hash().0, id);
    }
    let unknown = (0..20).map(|n| KeyHash([n; 32]));
    let lookup =
        |hash: KeyHash| spawn(&store, move |store| async move { (hash.0, store.find_key(&hash).await.unwrap()) });
    let lookups = hashes.into_iter().chain(unknown).cycle().take(400).map(lookup);
    for lookup in lookups.collect::<Vec<_>>() {
        let (hash, grant) = lookup.await.unwrap();
        assert_eq!(grant.map(|grant| grant.id), ids.get(&hash).copied());
    }
}
