//! Promise 7: an idempotency key that is reused for another request is rejected.

use std::collections::HashMap;

use testkit::{Random, Shop, trial};

use crate::keyed::{Operation, effects};

const KEYS: u64 = 6;
const TEXTS: u64 = 3;

#[test]
fn key_misuse_is_rejected_on_postgresql() {
    play(&Shop::on_postgresql());
}

#[test]
fn key_misuse_is_rejected_in_the_embedded_database() {
    play(&Shop::on_sqlite());
}

/// Reuses a few keys with various texts, operations and accounts, and compares each response with the documented one. Now
/// and then, the service is killed and restarted, or all records expire.
fn play(shop: &Shop) {
    let (cases, mut random) = (trial::rounds(150), Random::from_seed());
    let accounts = [shop.key.clone(), shop.database.key_of("grace@example.com")];
    let mut service = shop.database.serve();
    // The first text of each key, and the response to it.
    let mut used: HashMap<(usize, Operation, u64), (u64, String)> = HashMap::new();
    // The prepared text of each key and number, because an order can be placed or approved only once.
    let mut texts: HashMap<(usize, Operation, u64, u64), String> = HashMap::new();
    let (mut first, mut again, mut refused, mut restarts, mut days) = (0, 0, 0, 0, 0);
    for case in trial::counted(cases) {
        if random.below(40) == 0 {
            service.kill();
            service = shop.database.serve();
            restarts += 1;
        }
        if random.below(40) == 0 {
            shop.database.sql("UPDATE idempotency_records SET expires_at = expires_at - 86400000");
            used.clear();
            texts.clear();
            days += 1;
        }
        let account = random.index(2);
        let operation = Operation::ALL[random.index(Operation::ALL.len())];
        let (key, text) = (random.below(KEYS), random.below(TEXTS));
        let prepared = texts
            .entry((account, operation, key, text))
            .or_insert_with(|| operation.text(&service, &accounts[account], &format!("text-{case}")));
        let response = operation.send(&service, &accounts[account], &format!("key-{key}"), prepared);
        let found = (response.status(), response.is_replayed());
        match used.get(&(account, operation, key)) {
            None => {
                assert_eq!(found, (operation.status(), false), "{case}: {response:?}");
                used.insert((account, operation, key), (text, response.body));
                first += 1;
            }
            Some((same, body)) if *same == text => {
                assert_eq!(found, (operation.status(), true), "{case}: {response:?}");
                assert_eq!(&response.body, body, "{case}");
                again += 1;
            }
            Some(_) => {
                assert_eq!(found, (422, false), "{case}: {response:?}");
                assert_eq!(response.code(), "idempotency_key_reused", "{case}");
                refused += 1;
            }
        }
    }
    assert_eq!(effects(&shop.database).values().sum::<usize>(), first, "only the first request has an effect");
    trial::measured(&format!(
        "{cases} cases as decided: {first} executed, {again} replayed, {refused} refused, over {restarts} restarts and {days} days"
    ));

    // Control: with a corrupted record, the same request is rejected.
    let send = || Operation::CreatePet.send(&service, &shop.key, "control", "text").status();
    assert_eq!((send(), send()), (201, 201));
    shop.database.sql("UPDATE idempotency_records SET fingerprint = key_hash");
    assert_eq!(send(), 422);
}
