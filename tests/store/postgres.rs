//! Behaviour specific to PostgreSQL.

use std::collections::HashMap;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use petstore::domain::Direction::{Ascending, Descending};
use petstore::domain::account::PasswordDigest;
use petstore::domain::api_key::KeyQuery;
use petstore::domain::{
    ApiKey, Deployment, KeyHash, MessageId, NewOrder, OrderClerk, OrderQuery, OrderStatus, OrderTransition, PageLimit,
    PageQuery, Pet, PetQuery, PetStatus, Transition,
};
use petstore::store::postgres::{Options, Postgres};
use petstore::store::{Store, StoreError};
use testkit::postgres::{OpenTransaction, binaries, database, query, sessions, try_query};
use testkit::{PostgresServer, TIMEOUT, within};

use crate::fixtures::{NOW, OPERATOR, account, create_pet, new_key, new_pet, open_postgresql, open_with, options};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_write_of_a_batch_gets_its_own_id() {
    let (store, url) = open().await;
    let writes: Vec<_> = (0..2_000).map(|n| tokio::spawn(create(Arc::clone(&store), format!("animal {n}")))).collect();
    let mut answered = HashMap::new();
    for (n, write) in writes.into_iter().enumerate() {
        answered.insert(format!("animal {n}"), write.await.unwrap().unwrap());
    }
    let batches = query(&url, "SELECT count(DISTINCT xmin::text) FROM pets").parse::<u32>().unwrap();
    assert!(batches < 200, "{batches} statements for 2000 writes: there were no batches to speak of");
    let mut after = None;
    let mut seen = 0;
    loop {
        let page = PetQuery { limit: PageLimit::new(100).unwrap(), after, ..PetQuery::default() };
        let mut each = |pet: Pet<'_>| {
            assert_eq!(answered[&*pet.name], pet.id, "{}", pet.name);
            after = Some(pet.id);
            seen += 1;
        };
        if !store.list_pets(&page, &mut each).await.unwrap() {
            break;
        }
    }
    assert_eq!(seen, 2_000);
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
    let import = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.import_pets(Box::new(source)).await }
    });
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
    let animals = (0..3).map(|n| Ok(new_pet(&n.to_string(), PetStatus::Available)));
    assert_eq!(store.import_pets(Box::new(animals)).await.unwrap(), 3);
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
        rows += store.list_keys_of(grace, &KeyQuery { page, now: NOW }).await.unwrap().0.len();
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
        let store = Arc::clone(&store);
        tokio::spawn(async move {
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
    for list in lists.collect::<Vec<_>>() {
        list.await.unwrap();
    }
}

#[tokio::test]
async fn full_queue_rejects_writes_and_bounds_their_wait() {
    let (store, url) = open_limited(|options| Options { queue: 4, ..options }).await;
    let blocker = tokio::task::spawn_blocking({
        let url = url.clone();
        move || try_query(&url, "BEGIN; LOCK TABLE pets; SELECT pg_sleep(3); COMMIT")
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let began = Instant::now();
    // The first write is in progress alone, four wait, and the others are rejected.
    let mut writes = vec![tokio::spawn(create(Arc::clone(&store), "first".into()))];
    tokio::time::sleep(Duration::from_millis(200)).await;
    writes.extend((0..10).map(|n| tokio::spawn(create(Arc::clone(&store), n.to_string()))));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(writes.iter().filter(|write| write.is_finished()).count(), 6);
    for write in writes {
        let error = write.await.unwrap().unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    }
    assert!(began.elapsed() < Duration::from_millis(2_300), "{:?}", began.elapsed());
    blocker.await.unwrap().unwrap();
    let after = create(Arc::clone(&store), "after".into()).await.unwrap();
    assert!(after > 0);
    let refused = query(&url, "SELECT count(*) FROM pets WHERE name IN ('4', '5', '6', '7', '8', '9')");
    assert_eq!(refused, "0", "rejected writes are not executed later");
}

/// Another program has changed the rows, for instance a newer version.
#[tokio::test]
async fn row_that_cannot_be_decoded_is_not_a_lost_connection() {
    let (store, url) = open().await;
    let ada = account(&store, "ada@example.com").await;
    let pet = create(Arc::clone(&store), "Rex".into()).await.unwrap();
    let order = NewOrder { account: ada, pet_id: pet, now: NOW };
    let order = store.place_order(order, None).await.unwrap().executed().unwrap().id;
    for table in ["pets", "orders"] {
        query(
            &url,
            &format!("ALTER TABLE {table} DROP CONSTRAINT {table}_status_check; UPDATE {table} SET status = 7"),
        );
    }
    let connected = "SELECT pid FROM pg_stat_activity
        WHERE application_name = 'petstore' AND datname = current_database() ORDER BY pid";
    let before = query(&url, connected);

    let read = store.find_pet(pet).await.unwrap_err();
    let by = OrderClerk::Customer(ada);
    let approval = OrderTransition { by, order, transition: Transition::Approve, now: NOW };
    let written = store.transition_order(approval, None).await.unwrap_err();

    for error in [read, written] {
        assert!(matches!(&error, StoreError::Failed(why) if why.ends_with("status is 7")), "{error}");
    }
    assert_eq!(query(&url, connected), before, "no connection was replaced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_order_does_not_fail_the_readiness_check() {
    let (store, url) = open().await;
    let ada = account(&store, "ada@example.com").await;
    let pet = create(Arc::clone(&store), "Rex".into()).await.unwrap();
    let order = NewOrder { account: ada, pet_id: pet, now: NOW };
    let order = store.place_order(order, None).await.unwrap().executed().unwrap().id;
    let operator = OpenTransaction::begin(&url, "SELECT FROM orders FOR UPDATE");
    let approvals = [1, 2, 3].map(|_| {
        let store = Arc::clone(&store);
        let by = OrderClerk::Customer(ada);
        let approval = OrderTransition { by, order, transition: Transition::Approve, now: NOW };
        tokio::spawn(async move { store.transition_order(approval, None).await })
    });
    within(TIMEOUT, "waiting for the order", || sessions(&url, "wait_event_type = 'Lock'") > 0);

    store.check().await.unwrap();

    for approval in approvals {
        let refused = approval.await.unwrap().unwrap_err();
        assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
    }
    operator.release();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_counts_of_tables_run_one_at_a_time() {
    let url = database();
    let store = open_with(&Options { deployment: Some(Deployment::Staging), ..options(&url) }).await;
    let vacuum = OpenTransaction::begin(&url, "LOCK TABLE pets, messages");
    let counting = || sessions(&url, "wait_event_type = 'Lock'");
    // A page that is reloaded again and again.
    for _ in 0..5 {
        let abandoned = [
            tokio::spawn({
                let store = Arc::clone(&store);
                async move { store.before_reset().await.map(|_| ()) }
            }),
            tokio::spawn({
                let store = Arc::clone(&store);
                async move { store.count_pets_by_status().await.map(|_| ()) }
            }),
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
async fn reads_are_retried_when_their_connection_is_lost() {
    let (store, url) = open().await;
    create(Arc::clone(&store), "Rex".into()).await.unwrap();
    for _ in 0..5 {
        query(
            &url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'petstore' AND datname = current_database()",
        );
        assert_eq!(store.find_pet(1).await.unwrap().unwrap().name, "Rex");
    }
}

/// New connections hang, for instance because the server's machine has too little memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_use_the_connections_that_are_left() {
    let server = PostgresServer::start();
    let url = server.database();
    let store = open_with(&Options { readers: 2, ..options(&url) }).await;
    // While the table is locked, each connection for reads waits.
    let blocker = OpenTransaction::begin(&url, "LOCK TABLE orders");
    let reads = [1, 2].map(|id| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.find_order(None, id).await })
    });
    let waiting = "wait_event_type = 'Lock'";
    within(TIMEOUT, "waiting for the table", || sessions(&url, waiting) == 2);
    let reader = query(&url, &format!("SELECT min(pid) FROM pg_stat_activity WHERE {waiting}"));
    blocker.release();
    for read in reads {
        _ = read.await.unwrap();
    }
    let listener = std::fs::read_to_string(server.folder.join("data/postmaster.pid")).unwrap();
    let _stopped = Stopped::process(listener.lines().next().unwrap());

    signal("TERM", &reader);
    let is_lost = || store.meters().connections.contains(&("reads", false));
    within(TIMEOUT, "losing a connection", is_lost);

    for _ in 0..4 {
        assert_eq!(store.find_order(None, 1).await.unwrap(), None);
    }
    assert!(is_lost(), "it was not replaced meanwhile");
}

/// A process that is stopped until this is dropped.
struct Stopped(String);

impl Stopped {
    fn process(id: &str) -> Self {
        signal("STOP", id);
        Self(id.to_owned())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal("CONT", &self.0);
    }
}

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), process]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_read_of_a_batch_gets_its_own_result() {
    let (store, _) = open().await;
    for n in 1..=100 {
        assert_eq!(create(Arc::clone(&store), format!("animal {n}")).await.unwrap(), n);
    }
    let reads = (0..2_000).map(|n| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            // Some ids repeat, and some do not exist.
            let id = n % 130 - 10;
            let found = store.find_pet(id).await.unwrap().map(|pet| pet.name);
            assert_eq!(found, (1..=100).contains(&id).then(|| format!("animal {id}").into()));
            let after = n % 7 * 20;
            let expected = (after + 1..=100).take(20).collect::<Vec<_>>();
            assert_eq!(list(&store, 20, after).await, expected);
        })
    });
    for read in reads.collect::<Vec<_>>() {
        read.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_reads_share_a_query() {
    let (store, url) = open_limited(|options| Options { readers: 2, ..options }).await;
    create(Arc::clone(&store), "Rex".into()).await.unwrap();
    let blocker = tokio::task::spawn_blocking({
        let url = url.clone();
        move || try_query(&url, "BEGIN; LOCK TABLE pets; SELECT pg_sleep(1.2); COMMIT")
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let reads = (0..100).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            assert_eq!(store.find_pet(1).await.unwrap().unwrap().name, "Rex");
            assert_eq!(list(&store, 20, 0).await, [1]);
        })
    });
    let reads: Vec<_> = reads.collect();
    // At most one statement per connection waits at the server.
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'pets'::regclass";
    let mut most = String::new();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(query(&url, waiting));
    }
    assert!(["1", "2"].contains(&most.as_str()), "{most}");
    for read in reads {
        read.await.unwrap();
    }
    blocker.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn key_lookups_do_not_delay_other_reads() {
    let (store, url) = open_limited(|options| Options { readers: 2, ..options }).await;
    create(Arc::clone(&store), "Rex".into()).await.unwrap();
    // Lookups wait while this transaction locks the table of keys.
    let mut blocker = psql(&url);
    blocker.send("BEGIN; LOCK TABLE api_keys;");
    let locks = "FROM pg_locks WHERE relation = 'api_keys'::regclass AND";
    first_nonzero(&url, &format!("SELECT count(*) {locks} granted AND mode = 'AccessExclusiveLock'")).await;
    let lookups: Vec<_> = (0..100)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.find_key(&KeyHash([n; 32])).await })
        })
        .collect();
    let waiting = &format!("SELECT count(*) {locks} NOT granted");
    let at_the_server = first_nonzero(&url, waiting).await;
    assert_eq!(at_the_server, "1", "all other lookups wait for the next statement");
    for _ in 0..20 {
        assert_eq!(list(&store, 20, 0).await, [1]);
        assert!(store.find_pet(1).await.unwrap().is_some());
    }
    assert_ne!(query(&url, waiting), "0", "the table was locked throughout");
    blocker.send("COMMIT;");
    for lookup in lookups {
        let found = lookup.await.unwrap();
        // On a busy machine a lookup may have timed out.
        assert!(matches!(found, Ok(None) | Err(StoreError::Unavailable(_))), "{found:?}");
    }
    assert!(store.find_key(&KeyHash([0; 32])).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_key_of_a_batch_gets_its_own_grant() {
    let (store, _) = open().await;
    let account = account(&store, "ada@example.com").await;
    let keys: Vec<_> = (0..20).map(|_| ApiKey::generate(Deployment::Production)).collect();
    let mut ids = HashMap::new();
    for key in &keys {
        ids.insert(key.hash().0, store.create_key(new_key(key, account, None), OPERATOR).await.unwrap());
    }
    let unknown = (0..20).map(|n| KeyHash([n; 32]));
    let lookups = keys.iter().map(ApiKey::hash).chain(unknown).cycle().take(400).map(|hash| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { (hash.0, store.find_key(&hash).await.unwrap()) })
    });
    for lookup in lookups.collect::<Vec<_>>() {
        let (hash, grant) = lookup.await.unwrap();
        assert_eq!(grant.map(|grant| grant.id), ids.get(&hash).copied());
    }
}

/// Repeats a count until it is not 0, and returns it.
async fn first_nonzero(url: &str, sql: &str) -> String {
    let began = Instant::now();
    loop {
        match query(url, sql) {
            none if none == "0" => tokio::time::sleep(Duration::from_millis(10)).await,
            some => return some,
        }
        assert!(began.elapsed() < Duration::from_secs(20), "still none: {sql}");
    }
}

/// An interactive psql. Ends on drop.
struct Psql(Child);

fn psql(url: &str) -> Psql {
    let mut command = Command::new(binaries().join("psql"));
    command.args(["--no-psqlrc", "--quiet", "-d", url]);
    Psql(command.stdin(Stdio::piped()).spawn().unwrap())
}

impl Psql {
    fn send(&mut self, sql: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{sql}").unwrap();
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn shared_read_is_never_older_than_its_request() {
    let (store, _) = open().await;
    let busy: Vec<_> = (0..16)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                loop {
                    list(&store, 100, 0).await;
                    _ = store.find_pet(1).await.unwrap();
                }
            })
        })
        .collect();
    for n in 1..=100 {
        // Other tasks read it all the time, and it is visible as soon as it exists.
        assert_eq!(create(Arc::clone(&store), "Rex".into()).await.unwrap(), n);
        assert_eq!(list(&store, 100, 0).await.len() as i64, n);
        assert!(store.find_pet(n).await.unwrap().is_some());
    }
    busy.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn database_with_another_encoding_is_rejected() {
    let server = PostgresServer::shared();
    server.sql("postgres", "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    let refused = Postgres::open(&options(&server.url("latin"))).await.unwrap_err().to_string();
    assert_eq!(refused, "the database's encoding is LATIN1: create one with ENCODING 'UTF8'");
}

#[tokio::test]
async fn server_settings_cannot_make_commits_less_durable() {
    let server = PostgresServer::start();
    let url = server.database();
    open_postgresql(&url).await.close().await;
    name_animals_after_setting(&url, "synchronous_commit");
    let waits_for = async |store: &Arc<Store>| {
        let id = create(Arc::clone(store), "Rex".into()).await.unwrap();
        store.find_pet(id).await.unwrap().unwrap().name.clone()
    };
    let name = url.rsplit('/').next().unwrap();
    for (chosen, used) in [
        ("off", "on"),
        ("local", "on"),
        ("on", "on"),
        ("remote_write", "remote_write"),
        ("remote_apply", "remote_apply"),
    ] {
        query(&url, &format!("ALTER DATABASE {name} SET synchronous_commit = {chosen}"));
        let store = open_postgresql(&url).await;
        assert_eq!(waits_for(&store).await, used, "set to {chosen}");
        store.close().await;
    }

    query(&url, &format!("ALTER DATABASE {name} RESET synchronous_commit"));
    let store = open_postgresql(&url).await;
    server.set("synchronous_commit", "off");
    while query(&url, "SHOW synchronous_commit") != "off" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for _ in 0..20 {
        assert_eq!(waits_for(&store).await, "on", "set to off while petstore runs");
    }
}

#[tokio::test]
async fn server_settings_cannot_change_the_isolation_level() {
    let url = database();
    open_postgresql(&url).await.close().await;
    name_animals_after_setting(&url, "transaction_isolation");
    let name = url.rsplit('/').next().unwrap();
    query(&url, &format!("ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'"));
    let store = open_postgresql(&url).await;
    create(Arc::clone(&store), "Rex".into()).await.unwrap();
    store.import_pets(Box::new(std::iter::once(Ok(new_pet("Rex", PetStatus::Available))))).await.unwrap();
    assert_eq!(query(&url, "SELECT DISTINCT name FROM pets"), "read committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn write_whose_commit_is_in_doubt_says_so() {
    let server = PostgresServer::start();
    let url = server.database();
    let store = open_postgresql(&url).await;
    let ada = account(&store, "ada@example.com").await;
    // Commits wait for a standby that does not exist.
    server.set("synchronous_standby_names", "*");
    let import = tokio::spawn({
        let store = Arc::clone(&store);
        let animals = std::iter::once(Ok(new_pet("Rex", PetStatus::Available)));
        async move { store.import_pets(Box::new(animals)).await }
    });
    let waiting = "wait_event = 'SyncRep'";
    within(TIMEOUT, "waiting for a standby", || sessions(&url, waiting) == 1);

    query(&url, &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {waiting}"));

    let error = import.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("the animals may have been added"), "{error}");
    assert_eq!(query(&url, "SELECT count(*) FROM pets"), "1");
    let unknown = create(Arc::clone(&store), "Mimi".into()).await.unwrap_err().to_string();
    assert_eq!(unknown, "unavailable: PostgreSQL did not answer within 1.5s");
    let changed = store.set_password(ada, PasswordDigest("new".into()), OPERATOR).await;
    assert_eq!(changed.unwrap_err().to_string(), "unavailable: PostgreSQL did not answer within 1.8s");
}

/// Creates a trigger that names each new animal after the value of a setting in its transaction.
fn name_animals_after_setting(url: &str, setting: &str) {
    let function = format!(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN NEW.name = current_setting('{setting}'); RETURN NEW; END $$"
    );
    query(url, &format!("{function}; CREATE TRIGGER note BEFORE INSERT ON pets FOR EACH ROW EXECUTE FUNCTION note()"));
}

async fn open() -> (Arc<Store>, String) {
    open_limited(|options| options).await
}

async fn open_limited(limit: fn(Options) -> Options) -> (Arc<Store>, String) {
    let url = database();
    (open_with(&limit(options(&url))).await, url)
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
