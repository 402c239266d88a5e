//! The outbox, on every database.

use petstore::domain::{
    AccountId, Actor, AuditFilter, Message, MessageId, MessageQuery, MessageRecord, MessageState, PageLimit, PageQuery,
    Timestamp,
};
use petstore::store::{RelayLease, Store};

use crate::fixtures::{NOW, account, message, on_every_database, open_postgresql};

fn later(milliseconds: i64) -> Timestamp {
    Timestamp::from_milliseconds(NOW.as_milliseconds() + milliseconds)
}

/// Queues messages a millisecond apart, alternately of two accounts.
async fn queue(store: &Store, number: i64) -> Vec<Message> {
    let accounts = [account(store, "ada@example.com").await, account(store, "grace@example.com").await];
    let mut messages = Vec::new();
    for n in 0..number {
        let message = message(accounts[(n % 2) as usize], &format!("message {n}"), later(n));
        store.create_message(message.clone(), None).await.unwrap();
        messages.push(message);
    }
    messages
}

async fn lease(store: &Store) -> RelayLease {
    let mut lease = RelayLease::default();
    assert!(store.hold_relay_lease(&mut lease).await.unwrap());
    lease
}

fn ids(messages: &[Message]) -> Vec<(AccountId, MessageId)> {
    messages.iter().map(key).collect()
}

/// Precedes every message.
const START: (AccountId, MessageId) = (AccountId(0), MessageId::MIN);

fn key(message: &Message) -> (AccountId, MessageId) {
    (message.account, message.id)
}

#[test]
fn messages_wait_in_order_until_marked_sent() {
    on_every_database(async |store| {
        let mut messages = queue(&store, 7).await;
        // Ada's 4 messages, then Grace's 3.
        messages.sort_by_key(|message| message.account.0);
        let _lease = lease(&store).await;
        assert_eq!(store.unsent_messages(START, 100).await.unwrap(), messages);
        assert_eq!(store.unsent_messages(START, 3).await.unwrap(), messages[..3]);
        assert_eq!(store.unsent_messages(key(&messages[2]), 3).await.unwrap(), messages[3..6]);
        assert_eq!(store.unsent_messages((messages[0].account, MessageId::MAX), 2).await.unwrap(), messages[4..6]);
        assert_eq!(store.unsent_messages(key(&messages[6]), 3).await.unwrap(), []);
        assert_eq!(store.count_unsent_messages(5).await.unwrap(), 5);

        store.mark_messages_sent(ids(&messages[1..4]), later(100)).await.unwrap();
        // Marking twice changes nothing but the time.
        store.mark_messages_sent(ids(&messages[1..2]), later(101)).await.unwrap();

        let waiting: Vec<_> = store.unsent_messages(START, 100).await.unwrap();
        assert_eq!(waiting, [&messages[..1], &messages[4..]].concat());
        assert_eq!(store.count_unsent_messages(100).await.unwrap(), 4);

        // A message that is stored late, with an id before those of sent messages, is not skipped.
        let early = message(messages[0].account, "late", later(-1_000));
        store.create_message(early.clone(), None).await.unwrap();
        assert_eq!(store.unsent_messages(START, 1).await.unwrap(), [early]);
    });
}

#[tokio::test]
async fn stores_in_two_schemas_of_a_database_have_a_lease_each() {
    let url = testkit::postgres::database();
    testkit::postgres::query(&url, "CREATE SCHEMA second");
    let [first, second] =
        [open_postgresql(&url).await, open_postgresql(&format!("{url}?options=-csearch_path%3Dsecond")).await];
    let _leases = [lease(&first).await, lease(&second).await];
}

#[test]
fn retries_reach_the_relay_once() {
    on_every_database(async |store| {
        let messages = queue(&store, 3).await;
        assert_eq!(store.take_retries().await.unwrap(), None);
        store.mark_messages_sent(ids(&messages[..1]), later(1)).await.unwrap();

        assert!(!store.retry_messages(vec![messages[0].id]).await.unwrap(), "it is sent");
        assert!(!store.retry_messages(vec![messages[1].id, MessageId::MAX]).await.unwrap(), "one does not exist");
        assert!(store.retry_messages(vec![messages[1].id]).await.unwrap());
        assert!(store.retry_messages(vec![]).await.unwrap());

        let taken = store.take_retries().await.unwrap();
        assert_eq!(taken, Some(format!("{} {} all", messages[1].id, messages[1].account.0)));
        assert_eq!(store.take_retries().await.unwrap(), None);
    });
}

#[test]
fn discarded_messages_are_gone_and_audited() {
    on_every_database(async |store| {
        let messages = queue(&store, 4).await;
        store.mark_messages_sent(ids(&messages[..1]), later(1)).await.unwrap();
        let discard = async |numbers: &[usize]| {
            let ids = numbers.iter().map(|n| messages[*n].id).collect();
            store.discard_messages(ids, Actor::command_line(NOW)).await.unwrap()
        };

        assert!(!discard(&[1, 0]).await, "one is sent");
        assert_eq!(exported(&store, MessageQuery::default()).await.len(), 4);
        assert!(discard(&[1, 3]).await);

        let left: Vec<_> =
            exported(&store, MessageQuery::default()).await.into_iter().map(|it| it.message.id).collect();
        assert_eq!(left, [messages[0].id, messages[2].id]);
        let page = PageQuery { limit: PageLimit::new(100).unwrap(), ..PageQuery::default() };
        let (rows, _) = store.list_audit(&AuditFilter { since: NOW, ..AuditFilter::default() }, page).await.unwrap();
        let rows: Vec<_> = rows.iter().filter(|row| row.action == "message.discard").map(|row| &*row.subject).collect();
        let subjects = [(1, "grace"), (3, "grace")].map(|(n, of)| format!("{} of {of}@example.com", messages[n].id));
        assert_eq!(rows, subjects);
    });
}

#[test]
fn sent_messages_are_deleted_but_waiting_ones_never() {
    on_every_database(async |store| {
        let messages = queue(&store, 6).await;
        let _lease = lease(&store).await;
        for (n, message) in messages[..5].chunks(1).enumerate() {
            store.mark_messages_sent(ids(message), later(n as i64)).await.unwrap();
        }
        for deleted in [3, 1, 0] {
            assert_eq!(store.delete_sent_messages(later(4), 3).await.unwrap(), deleted);
        }
        assert_eq!(exported(&store, MessageQuery::default()).await.len(), 2);
        assert_eq!(store.delete_sent_messages(later(1_000_000), 3).await.unwrap(), 1);
        assert_eq!(store.unsent_messages(START, 10).await.unwrap(), messages[5..]);
    });
}

#[test]
fn export_filters_messages() {
    on_every_database(async |store| {
        let messages = queue(&store, 4).await;
        let _lease = lease(&store).await;
        store.mark_messages_sent(ids(&messages[..1]), later(-50)).await.unwrap();
        let of = |number: &[usize]| number.iter().map(|n| messages[*n].clone()).collect::<Vec<_>>();
        let all = exported(&store, MessageQuery::default()).await;
        assert_eq!(all.iter().map(|record| record.message.clone()).collect::<Vec<_>>(), of(&[0, 2, 1, 3]));
        assert_eq!((all[0].sent_at, all[1].sent_at), (Some(later(0)), None), "not before it was created");
        assert_eq!((all[0].account.as_str(), all[2].account.as_str()), ("ada@example.com", "grace@example.com"));

        let account = Some(messages[0].account);
        let queries = [
            (MessageQuery { newest: Some(3), ..MessageQuery::default() }, of(&[3, 2, 1])),
            (MessageQuery { state: Some(MessageState::Sent), ..MessageQuery::default() }, of(&[0])),
            (MessageQuery { account, ..MessageQuery::default() }, of(&[0, 2])),
            (MessageQuery { account, state: Some(MessageState::Waiting), newest: Some(9) }, of(&[2])),
        ];
        for (query, expected) in queries {
            let found: Vec<_> = exported(&store, query).await.into_iter().map(|record| record.message).collect();
            assert_eq!(found, expected, "{query:?}");
            if query.newest.is_none() {
                assert_eq!(store.count_messages(&query).await.unwrap(), expected.len() as u64);
            }
        }
    });
}

#[test]
fn long_export_covers_all_accounts() {
    on_every_database(async |store| {
        // Every second message is Grace's. Ada's account is exported first.
        let messages = queue(&store, 700).await;
        let last = message(messages[1].account, "the last", later(1_000));
        let mut records: Vec<MessageRecord> = Vec::new();
        let add = || {
            let add = store.create_message(last.clone(), None);
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(add)).unwrap();
        };
        let mut keep = |record| {
            if records.is_empty() {
                add();
            }
            records.push(record);
            Ok(())
        };
        store.export_messages(&MessageQuery::default(), &mut keep).await.unwrap();
        let of = |parity: usize| messages.iter().skip(parity).step_by(2).cloned();
        let expected: Vec<_> = of(0).chain(of(1)).chain([last.clone()]).collect();
        let found: Vec<_> = records.into_iter().map(|record| record.message).collect();
        assert_eq!(found, expected, "the last message was added while the first was written");

        let graces = exported(&store, MessageQuery { account: Some(last.account), ..MessageQuery::default() }).await;
        let graces: Vec<_> = graces.into_iter().map(|record| record.message).collect();
        assert_eq!(graces, expected[350..], "of one account");
    });
}

async fn exported(store: &Store, query: MessageQuery) -> Vec<MessageRecord> {
    let mut records = Vec::new();
    let mut keep = |record| {
        records.push(record);
        Ok(())
    };
    store.export_messages(&query, &mut keep).await.unwrap();
    records
}
