//! Erasing accounts, and changing their addresses.

use expect_test::expect;
use futures_util::future::join_all;
use petstore::domain::api_key::{KeyName, NewKey};
use petstore::domain::{
    AccountId, Actor, ApiKey, AuditFilter, IdempotencyKey, KeyedRequest, NewOrder, Order, OrderQuery, OrderStatus,
    PageLimit, PageQuery, PetStatus, Role,
};
use petstore::store::{Store, StoredResponse, WriteKey};

use crate::fixtures::{
    Executed, NOW, OPERATOR, account, account_at, account_with_password, create_pet, email, key, message,
    on_every_database, session,
};

/// All rows of the audit, oldest first, without hints of keys.
async fn audit(store: &Store) -> String {
    let page = PageQuery { limit: PageLimit::new(100).unwrap(), ..PageQuery::default() };
    let rows = store.list_audit(&AuditFilter { since: NOW, ..AuditFilter::default() }, page).await.unwrap().0;
    let shown = rows.iter().map(|row| {
        let client = row.client_address.as_deref().unwrap_or("-");
        format!("{} | {} | {} | {client}\n", row.action, row.actor, row.subject)
    });
    let shown: String = shown.collect();
    let parts: Vec<_> = shown.split('…').enumerate().map(|(n, part)| &part[if n == 0 { 0 } else { 4 }..]).collect();
    parts.join("…")
}

fn once(account: AccountId, key: &str) -> WriteKey<Order> {
    let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
    let request = KeyedRequest::new(account, "placeOrder", &key, "/v1/store/orders", "{}", NOW);
    WriteKey::new(request, |order: &Order| StoredResponse::json(201, order.to_json()))
}

async fn statuses(store: &Store, account: AccountId) -> Vec<OrderStatus> {
    let mut statuses = Vec::new();
    store.list_orders(Some(account), &OrderQuery::default(), &mut |order| statuses.push(order.status)).await.unwrap();
    statuses
}

/// The numbers of messages and stored responses.
async fn left(store: &Store) -> (u64, u64) {
    let contents = store.before_reset().await.unwrap();
    (contents.messages, contents.responses)
}

#[test]
fn erased_account_leaves_only_its_orders() {
    on_every_database(async |store| {
        let (ada, password) = account_with_password(&store, "Lovelace@example.com").await;
        key(&store, ada, None).await;
        assert!(store.set_email(ada, email("ada@example.com"), OPERATOR).await.unwrap());
        let by_ada = Actor { name: "ada@example.com".into(), client_address: Some([192, 0, 2, 1].into()), ..OPERATOR };
        let named = |owner, name: &str| {
            let key = ApiKey::generate(store.deployment());
            NewKey::of(&key, owner, KeyName::parse(name.to_owned()).unwrap(), NOW, None)
        };
        store.create_key(named(ada, "Ada's: laptop of ada@example.com"), by_ada).await.unwrap();
        // Its address ends like hers, its next one begins like hers, and a key is named after her.
        let da = account(&store, "da@example.com").await;
        assert!(store.set_email(da, email("ada@example.com.au"), OPERATOR).await.unwrap());
        store.create_key(named(da, "for ada@example.com and xada@example.com"), OPERATOR).await.unwrap();
        let pet_id = create_pet(&store, "Rex", PetStatus::Available).await.unwrap();
        let order = NewOrder { account: ada, pet_id, now: NOW };
        assert!(store.place_order(order, Some(once(ada, "1"))).await.unwrap().executed().is_some());
        let begun = session(ada, NOW);
        assert!(store.create_session(begun, password).await.unwrap());
        for owner in [ada, da] {
            store.create_message(message(owner, "Hi", NOW), None).await.unwrap();
        }
        let before = audit(&store).await;

        assert_eq!(store.erase_account(ada, false, OPERATOR).await.unwrap(), Some(false), "a message is not sent");
        assert_eq!((left(&store).await, audit(&store).await), ((2, 1), before));
        assert!(store.find_session(&begun.hash).await.unwrap().is_some());

        assert_eq!(store.erase_account(ada, true, OPERATOR).await.unwrap(), Some(true));

        assert_eq!(store.erase_account(ada, true, OPERATOR).await.unwrap(), None);
        assert_eq!(left(&store).await, (1, 0), "the other account keeps its message");
        let keys = store.list_keys().await.unwrap();
        assert_eq!(keys.iter().map(|key| key.account.as_str()).collect::<Vec<_>>(), ["ada@example.com.au"]);
        assert_eq!(store.find_session(&begun.hash).await.unwrap(), None);
        assert_eq!(store.find_account(&email("ada@example.com")).await.unwrap(), None);
        assert_eq!(store.find_email(ada).await.unwrap(), Some(ada.pseudonym()));
        assert_eq!(statuses(&store, ada).await, [OrderStatus::Cancelled]);
        assert_eq!(store.find_pet(pet_id).await.unwrap().unwrap().status, PetStatus::Available);
        expect![[r#"
            account.create | command line | erased-1@account.invalid (customer) | -
            key.create | command line | key 1 (pet_test_…) of erased-1@account.invalid | -
            account.set_email | command line | erased-1@account.invalid | -
            key.create | erased-1@account.invalid | key 2 (pet_test_…) of erased-1@account.invalid | -
            account.create | command line | ada@example.com.au (customer) | -
            account.set_email | command line | da@example.com to ada@example.com.au | -
            key.create | command line | key 3 (pet_test_…) of ada@example.com.au: for erased-1@account.invalid and xada@example.com | -
            key.revoke | command line | key 1 (pet_test_…) of erased-1@account.invalid | -
            key.revoke | command line | key 2 (pet_test_…) of erased-1@account.invalid | -
            order.cancel | command line | order 1 of erased-1@account.invalid | -
            account.erase | command line | erased-1@account.invalid | -
        "#]]
        .assert_eq(&audit(&store).await);

        // Requests that began before have no effect, or one that lasts until the next deletion of expired rows.
        assert!(store.place_order(order, Some(once(ada, "2"))).await.unwrap().executed().is_none());
        store.create_message(message(ada, "late", NOW), None).await.unwrap();
        store.delete_expired_responses(NOW, 1).await.unwrap();
        assert_eq!(left(&store).await, (1, 0));
        // The address is free.
        account(&store, "ada@example.com").await;
    });
}

#[test]
fn address_and_key_ids_of_an_ended_account_stay_its_own() {
    on_every_database(async |store| {
        let (deleted, erased) = (account(&store, "ada@example.com").await, account(&store, "ben@example.com").await);
        key(&store, erased, None).await;
        assert!(store.delete_account(deleted, None, OPERATOR).await.unwrap());
        assert_eq!(store.erase_account(erased, false, OPERATOR).await.unwrap(), Some(true));

        // One account leaves its address, and takes that of another one, which began later and has ended.
        let next = account_at(&store, "carl@example.com", 1).await;
        key(&store, next, None).await;
        let later = account_at(&store, "ada@example.com", 2).await;
        assert!(store.delete_account(later, None, OPERATOR).await.unwrap());
        for address in ["ada@example.com", "eve@example.com"] {
            assert!(store.set_email(next, email(address), OPERATOR).await.unwrap());
        }

        expect![[r#"
            account.create | command line | ada@example.com (customer) | -
            account.create | command line | erased-2@account.invalid (customer) | -
            key.create | command line | key 1 (pet_test_…) of erased-2@account.invalid | -
            account.delete | command line | ada@example.com | -
            key.revoke | command line | key 1 (pet_test_…) of erased-2@account.invalid | -
            account.erase | command line | erased-2@account.invalid | -
            account.create | command line | eve@example.com (customer) | -
            key.create | command line | key 2 (pet_test_…) of eve@example.com: test | -
            account.create | command line | ada@example.com (customer) | -
            account.delete | command line | ada@example.com | -
            account.set_email | command line | carl@example.com to eve@example.com | -
            account.set_email | command line | ada@example.com to eve@example.com | -
        "#]]
        .assert_eq(&audit(&store).await);
    });
}

#[test]
fn erasing_while_orders_are_placed_leaves_no_row() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        let pets = join_all((0..30).map(|_| create_pet(&store, "Rex", PetStatus::Available))).await;
        let place = async |pet_id: i64| {
            let order = NewOrder { account: ada, pet_id, now: NOW };
            let key = (pet_id % 2 == 0).then(|| once(ada, &pet_id.to_string()));
            store.place_order(order, key).await.unwrap();
            store.create_message(message(ada, "Hi", NOW), None).await.unwrap();
        };
        let (first, later) = pets.split_at(10);
        let orders = |pets: &[petstore::store::Result<i64>]| {
            join_all(pets.iter().map(|pet| place(*pet.as_ref().unwrap())).collect::<Vec<_>>())
        };
        orders(first).await;

        let (_, erased) = tokio::join!(orders(later), store.erase_account(ada, true, OPERATOR));

        assert_eq!(erased.unwrap(), Some(true));
        store.delete_expired_responses(NOW, 1).await.unwrap();
        assert_eq!(left(&store).await, (0, 0));
        let statuses = statuses(&store, ada).await;
        assert!(
            statuses.len() >= 10 && statuses.iter().all(|status| *status == OrderStatus::Cancelled),
            "{statuses:?}"
        );
        assert_eq!(store.count_pets_by_status().await.unwrap(), [30, 0, 0]);
    });
}

#[test]
fn address_that_another_account_has_is_refused() {
    on_every_database(async |store| {
        let ada = account(&store, "ada@example.com").await;
        account(&store, "ben@example.com").await;
        let before = audit(&store).await;

        assert!(store.set_email(ada, email("BEN@example.com"), OPERATOR).await.is_err());
        assert!(!store.set_email(AccountId(99), email("eve@example.com"), OPERATOR).await.unwrap());

        assert_eq!(audit(&store).await, before);
        assert!(store.set_email(ada, email("ADA@example.com"), OPERATOR).await.unwrap(), "another spelling");
        assert!(store.set_role(ada, Role::Staff, OPERATOR).await.unwrap());
        expect![[r#"
            account.create | command line | ADA@example.com (customer) | -
            account.create | command line | ben@example.com (customer) | -
            account.set_email | command line | ada@example.com to ADA@example.com | -
            account.set_role | command line | ADA@example.com (staff) | -
        "#]]
        .assert_eq(&audit(&store).await);
    });
}
