//! Behaviour specific to PostgreSQL.

mod reads;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use petstore::domain::{
    AccountId, IdempotencyKey, KeyedRequest, NewOrder, OrderTransition, PageLimit, Pet, PetQuery, PetStatus, Role,
    Transition,
};
use petstore::store::postgres::{Options, Postgres};
use petstore::store::{Store, StoreError, StoredResponse, WriteKey};
use testkit::postgres::{OpenTransaction, database, query, sessions};
use testkit::{PostgresServer, TIMEOUT, soon, until, within};

use crate::fixtures::{
    Executed, NOW, OPERATOR, account, animals, create_pet, digest, new_pet, open_with, options, spawn, with_timeout,
};

/// The sessions of the store.
const CONNECTED: &str = "SELECT pid FROM pg_stat_activity
    WHERE application_name = 'petstore' AND datname = current_database() ORDER BY pid";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_write_of_a_batch_gets_its_own_id() {
    let (store, url) = open().await;
    let ada = account(&store, "ada@example.com").await;
    // Writes with an idempotency key have batches of their own.
    let write = |n: usize| {
        let key = (n % 2 == 1).then(|| keyed(ada, &n.to_string()));
        let pet = new_pet(&format!("animal {n}"), PetStatus::Available);
        spawn(&store, move |store| async move { store.create_pet(pet, key).await })
    };
    let writes: Vec<_> = (0..2_000).map(write).collect();
    let mut answered = HashMap::new();
    for (n, write) in writes.into_iter().enumerate() {
        answered.insert(format!("animal {n}"), write.await.unwrap().unwrap().executed().unwrap().id);
    }
    let batches = query(&url, "SELECT count(DISTINCT xmin::text) FROM pets").parse::<u32>().unwrap();
    assert!(batches < 200, "{batches} statements for 2000 writes: there were no batches to speak of");
    let mut each = |pet: Pet<'_>| {
        assert_eq!(answered[&*pet.name], pet.id, "{}", pet.name);
        Ok(())
    };
    assert_eq!(store.export_pets(&mut each).await.unwrap(), 2_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn imported_ids_follow_those_created_meanwhile() {
    let (store, _) = open().await;
    let (halfway, at_half) = tokio::sync::oneshot::channel();
    let (go_on, created) = std::sync::mpsc::channel();
    let mut halfway = Some(halfway);
    // The import pauses here after it has sent more than one chunk to the server.
    let source = (0..3_000).map(move |n| {
        if n == 1_500 {
            halfway.take().unwrap().send(()).unwrap();
            created.recv().unwrap();
        }
        Ok(new_pet(&format!("imported {n}"), PetStatus::Available))
    });
    let import = spawn(&store, |store| async move { store.import_pets(Box::new(source)).await });
    at_half.await.unwrap();
    let created = create(Arc::clone(&store), "created".into()).await.unwrap();
    assert_eq!(list(&store, 100, 0).await, [created]);
    go_on.send(()).unwrap();
    assert_eq!(import.await.unwrap().unwrap(), 3_000);
    let mut names = Vec::new();
    let mut each = |pet: Pet<'_>| {
        names.push(pet.name.into_owned());
        Ok(())
    };
    store.export_pets(&mut each).await.unwrap();
    let expected: Vec<_> = ["created".into()].into_iter().chain((0..3_000).map(|n| format!("imported {n}"))).collect();
    assert_eq!(names, expected, "a follower that has seen the created animal still receives the imported ones");
}

/// In a rolling upgrade, a newer version has migrated the database.
#[tokio::test]
async fn import_leaves_a_column_of_a_newer_version_at_its_default() {
    let (store, url) = open().await;
    query(&url, "ALTER TABLE pets ADD COLUMN age bigint NOT NULL DEFAULT 7");
    assert_eq!(store.import_pets(animals(3)).await.unwrap(), 3);
    create(Arc::clone(&store), "created".into()).await.unwrap();
    assert_eq!(query(&url, "SELECT count(*) FROM pets WHERE age = 7"), "4");
}

#[tokio::test]
async fn ids_end_at_2_to_the_53rd_and_failed_batches_leave_nothing() {
    let (store, url) = open().await;
    query(&url, "SELECT setval(pg_get_serial_sequence('pets', 'id'), 9007199254740990)");
    assert_eq!(create(Arc::clone(&store), "last".into()).await.unwrap(), 9_007_199_254_740_991);
    let error = create(Arc::clone(&store), "beyond".into()).await.unwrap_err();
    assert!(matches!(error, StoreError::Failed(_)), "{error}");
    assert_eq!(store.count_pets().await.unwrap(), 1);
    store.check().await.unwrap();
}

#[tokio::test]
async fn full_queue_rejects_writes_and_bounds_their_wait() {
    let url = database();
    let mut options = with_timeout(&url, Duration::from_secs(10));
    options.cluster.queue = 4;
    let store = open_with(&options).await;
    let operator = OpenTransaction::begin(&url, "LOCK TABLE pets");
    // The first write is in progress alone, four wait, and the others are rejected.
    let mut writes = vec![tokio::spawn(create(Arc::clone(&store), "first".into()))];
    until(async || sessions(&url, "wait_event_type = 'Lock'") == 1).await;
    writes.extend((0..10).map(|n| tokio::spawn(create(Arc::clone(&store), n.to_string()))));
    until(async || writes.iter().filter(|write| write.is_finished()).count() >= 6).await;
    let mut rejected = 0;
    for write in writes {
        let error = soon(write).await.unwrap().unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        rejected += u32::from(error.to_string().contains("the write queue is full"));
    }
    assert_eq!(rejected, 6);
    operator.release();
    create(Arc::clone(&store), "after".into()).await.unwrap();
    let refused = query(&url, "SELECT count(*) FROM pets WHERE name IN ('4', '5', '6', '7', '8', '9')");
    assert_eq!(refused, "0", "rejected writes are not executed later");
}

/// Another program has changed the rows, for instance a newer version.
#[tokio::test]
async fn row_that_cannot_be_decoded_is_not_a_lost_connection() {
    let (store, url) = open().await;
    let approval = approval_of_new_order(&store).await;
    for table in ["pets", "orders"] {
        query(
            &url,
            &format!("ALTER TABLE {table} DROP CONSTRAINT {table}_status_check; UPDATE {table} SET status = 7"),
        );
    }
    let before = query(&url, CONNECTED);

    let read = store.find_pet(1).await.unwrap_err();
    let written = store.transition_order(approval, None).await.unwrap_err();

    assert!(matches!(&read, StoreError::Failed(why) if why.contains("7 is no code of")), "{read}");
    // The server may have committed it.
    assert!(matches!(&written, StoreError::Unavailable(why) if why.contains("7 is no code of")), "{written}");
    store.check().await.unwrap();
    assert!(no_connection_was_replaced(&url, &before));
}

/// Returns whether all sessions of the store are those in `before`. The one that opened the database may have ended.
fn no_connection_was_replaced(url: &str, before: &str) -> bool {
    let now = query(url, CONNECTED);
    let is_known = |pid: &str| before.lines().any(|known| known == pid);
    now.lines().all(is_known) && now.lines().count() + 1 >= before.lines().count()
}

#[tokio::test]
async fn batch_that_waits_too_long_for_a_lock_is_not_a_lost_connection() {
    // If the process pauses, PostgreSQL's answer may come after the time for a commit.
    for _ in 0..5 {
        let (store, url) = open_with_timeout(Duration::from_secs(10)).await;
        let (before, operator) = (query(&url, CONNECTED), OpenTransaction::begin(&url, "LOCK TABLE pets"));
        let key = keyed(account(&store, "ada@example.com").await, "key");

        let refused = store.create_pet(new_pet("Rex", PetStatus::Available), Some(key.clone())).await.unwrap_err();

        assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
        operator.release();
        let again = store.create_pet(new_pet("Rex", PetStatus::Available), Some(key)).await;
        if no_connection_was_replaced(&url, &before) {
            again.unwrap().executed().unwrap();
            return;
        }
    }
    panic!("a connection was replaced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_order_does_not_fail_the_readiness_check() {
    let (store, url) = open_with_timeout(Duration::from_secs(10)).await;
    let approval = approval_of_new_order(&store).await;
    let operator = OpenTransaction::begin(&url, "SELECT FROM orders FOR UPDATE");
    let are_waiting = || sessions(&url, "wait_event_type = 'Lock'") > 0;
    // The approvals give up after 8 s.
    until(async || {
        let approvals = [1, 2, 3].map(|_| {
            let approval = approval.clone();
            spawn(&store, |store| async move { store.transition_order(approval, None).await })
        });
        within(TIMEOUT, "waiting for the order", are_waiting);

        until(async || store.check().await.is_ok()).await;
        let is_ready_meanwhile = are_waiting();

        for approval in approvals {
            let refused = approval.await.unwrap().unwrap_err();
            assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
        }
        is_ready_meanwhile
    })
    .await;
    operator.release();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_counts_of_tables_run_one_at_a_time() {
    let (store, url) = open().await;
    let vacuum = OpenTransaction::begin(&url, "LOCK TABLE pets, messages");
    let counting = || sessions(&url, "wait_event_type = 'Lock'");
    // A page that is reloaded again and again.
    for _ in 0..5 {
        let abandoned = [
            spawn(&store, |store| async move { store.before_reset().await.map(|_| ()) }),
            spawn(&store, |store| async move { store.count_pets_by_status().await.map(|_| ()) }),
        ];
        within(TIMEOUT, "counting", || counting() > 0);
        tokio::time::sleep(Duration::from_millis(200)).await;
        abandoned.iter().for_each(tokio::task::JoinHandle::abort);
    }
    assert_eq!(counting(), 1);
    vacuum.release();
    assert_eq!(store.before_reset().await.unwrap().animals, 0);
}

#[tokio::test]
async fn database_with_another_encoding_is_rejected() {
    let server = PostgresServer::shared();
    server.sql("postgres", "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    let options = options(&server.url("latin"));
    let refused = Postgres::open(&options).await.unwrap_err().to_string();
    assert_eq!(Postgres::check_openable(&options.cluster.url, false).await.unwrap_err().to_string(), refused);
    assert_eq!(refused, "the database's encoding is LATIN1: create one with ENCODING 'UTF8'");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn write_whose_commit_is_in_doubt_says_so() {
    let server = PostgresServer::start();
    let url = server.database();
    let store = open_with(&with_timeout(&url, Duration::from_secs(6))).await;
    let ada = account(&store, "ada@example.com").await;
    // Commits wait for a standby that does not exist.
    server.set("synchronous_standby_names", "*");
    let import = spawn(&store, |store| async move { store.import_pets(animals(1)).await });
    let waiting = "wait_event = 'SyncRep'";
    within(TIMEOUT, "waiting for a standby", || sessions(&url, waiting) == 1);

    query(&url, &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {waiting}"));

    let error = import.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("the animals may have been added"), "{error}");
    assert_eq!(query(&url, "SELECT count(*) FROM pets"), "1");
    let unknown = create(Arc::clone(&store), "Mimi".into()).await.unwrap_err().to_string();
    // Within 5 s, or 6 s if the process paused.
    let after =
        |limit| format!("unavailable: PostgreSQL did not answer within {limit}s: the change may have been made");
    assert!([after(5), after(6)].contains(&unknown), "{unknown}");
    let changed = store.set_password(ada, digest("new"), false, OPERATOR).await;
    assert!(changed.unwrap_err().to_string().ends_with(" within 6s: the change may have been made"));
}

async fn open() -> (Arc<Store>, String) {
    open_limited(|options| options).await
}

async fn open_with_timeout(timeout: Duration) -> (Arc<Store>, String) {
    let url = database();
    (open_with(&with_timeout(&url, timeout)).await, url)
}

async fn open_limited(limit: fn(Options) -> Options) -> (Arc<Store>, String) {
    let url = database();
    (open_with(&limit(options(&url))).await, url)
}

/// The approval of an order for the store's first animal, by its customer.
async fn approval_of_new_order(store: &Arc<Store>) -> OrderTransition {
    let customer = account(store, "ada@example.com").await;
    let pet_id = create(Arc::clone(store), "Rex".into()).await.unwrap();
    let order = NewOrder { account: customer, pet_id, now: NOW };
    let order = store.place_order(order, None).await.unwrap().executed().unwrap().id;
    let (role, actor) = (Role::Customer, Box::new(OPERATOR));
    OrderTransition { account: customer, role, order, transition: Transition::Approve, actor }
}

/// The key of a request that creates an animal.
fn keyed(account: AccountId, key: &str) -> WriteKey<Pet<'static>> {
    let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
    let request = KeyedRequest::new(account, "createPet", &key, "/v1/pets", "", NOW);
    WriteKey::new(request, |pet: &Pet<'_>| StoredResponse::json(201, pet.id.to_string().into()))
}

async fn create(store: Arc<Store>, name: String) -> petstore::store::Result<i64> {
    create_pet(&store, &name, PetStatus::Available).await
}

/// The ids of a page.
async fn list(store: &Store, limit: i64, after: i64) -> Vec<i64> {
    let page = PetQuery { limit: PageLimit::new(limit).unwrap(), after: Some(after), ..PetQuery::default() };
    let mut ids = Vec::new();
    store.list_pets(&page, &mut |pet| ids.push(pet.id)).await.unwrap();
    ids
}
