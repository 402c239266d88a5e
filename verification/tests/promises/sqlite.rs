//! Behaviour specific to the embedded database.

use futures_util::future::join_all;
use petstore::domain::{AccountId, MessageQuery, NewAccount, PetStatus};
use petstore::store::StoreError;
use petstore::store::sqlite::Options;
use rusqlite::Connection;

use crate::fixtures::{Executed, NOW, OPERATOR, account, email, message, new_pet, open_sqlite};

#[tokio::test]
async fn failing_statement_does_not_fail_its_batch() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_sqlite(&Options::new(folder.path()));
    // The next id would be 2^53, which the table refuses.
    Connection::open(folder.path().join("petstore.db"))
        .unwrap()
        .execute("INSERT INTO pets (id, name, category_id, status) VALUES (9007199254740991, 'last', 1, 0)", [])
        .unwrap();
    let ada = email("ada@example.com");
    let (pet, account) = tokio::join!(
        store.create_pet(new_pet("Rex", PetStatus::Available), None),
        store.create_account(NewAccount::customer(ada.clone(), None), OPERATOR)
    );
    assert!(matches!(pet, Err(StoreError::Failed(_))), "{pet:?}");
    account.unwrap().unwrap();
    assert!(store.find_account(&ada).await.unwrap().is_some());
}

#[tokio::test]
async fn rows_of_several_requests_fail_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_sqlite(&Options::new(folder.path()));
    let known = account(&store, "a@example.com").await;
    let messages = (0..100).map(|n| {
        let account = if n == 50 { AccountId(known.0 + 1) } else { known };
        message(account, &n.to_string(), NOW)
    });
    let sent = join_all(messages.map(|message| store.create_message(message, None))).await;
    let refused: Vec<_> = (0..100).filter(|n| sent[*n].is_err()).collect();
    assert_eq!(refused, [50]);
    assert_eq!(store.count_messages(&MessageQuery::default()).await.unwrap(), 99);

    let pets = (0..100).map(|n| store.create_pet(new_pet(&format!("{n}"), PetStatus::Available), None));
    let created = join_all(pets);
    for (n, id) in created.await.into_iter().enumerate() {
        let id = id.unwrap().executed().unwrap().id;
        let found = store.find_pet(id).await.unwrap().unwrap();
        assert_eq!(found.name, format!("{n}"), "each request gets the id of its own animal");
    }
}
