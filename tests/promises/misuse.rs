//! Promise 7: a key that is used otherwise than it was is refused, by whom and whenever that may be.

use std::collections::HashMap;
use testkit::{Random, trial};

use crate::shop::{Operation, Shop};

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

/// Uses few keys again and again, for one thing or another, for any operation, by two accounts, and holds each answer against
/// what was decided. In between, the service is killed and started again, or a day goes by.
fn play(shop: &Shop) {
    let (cases, mut random) = (trial::rounds(150), Random::from_seed());
    let accounts = [shop.key.clone(), shop.database.key_of("grace@example.com")];
    let mut service = shop.database.serve();
    // The text and the answer that each key was used with first.
    let mut used: HashMap<(usize, Operation, u64), (u64, String)> = HashMap::new();
    // What is asked for with each key by each number: an order can be placed or approved once.
    let mut texts: HashMap<(usize, Operation, u64, u64), String> = HashMap::new();
    let (mut first, mut again, mut refused, mut restarts, mut days) = (0, 0, 0, 0, 0);
    for case in 0..cases {
        if random.below(40) == 0 {
            service.kill();
            service = shop.database.serve();
            restarts += 1;
        }
        if random.below(40) == 0 {
            shop.sql("UPDATE idempotency_records SET expires_at = expires_at - 86400000");
            used.clear();
            texts.clear();
            days += 1;
        }
        let account = random.below(2) as usize;
        let operation = Operation::ALL[random.below(Operation::ALL.len() as u64) as usize];
        let (key, text) = (random.below(KEYS), random.below(TEXTS));
        let asked = texts
            .entry((account, operation, key, text))
            .or_insert_with(|| operation.text(&service, &accounts[account], &format!("text-{case}")));
        let answer = operation.ask(&service, &accounts[account], &format!("key-{key}"), asked);
        match used.get(&(account, operation, key)) {
            None => {
                assert_eq!((answer.status, answer.is_replayed()), (operation.status(), false), "{case}: {answer:?}");
                used.insert((account, operation, key), (text, answer.body().to_owned()));
                first += 1;
            }
            Some((same, body)) if *same == text => {
                assert_eq!((answer.status, answer.is_replayed()), (operation.status(), true), "{case}: {answer:?}");
                assert_eq!(answer.body(), body, "{case}");
                again += 1;
            }
            Some(_) => {
                assert_eq!((answer.status, answer.is_replayed()), (422, false), "{case}: {answer:?}");
                assert_eq!(answer.json()["code"], "idempotency_key_reused", "{case}");
                refused += 1;
            }
        }
        if (case + 1) % 200 == 0 {
            println!("{} of {cases} cases", case + 1);
        }
    }
    assert_eq!(shop.effects().values().sum::<usize>(), first, "what was not the first had no effect");
    trial::measured(&format!(
        "{cases} cases as decided: {first} carried out, {again} replayed, {refused} refused, over {restarts} restarts and {days} days"
    ));

    // The control: with its record spoilt, the same request is not known again.
    let ask = || Operation::CreatePet.ask(&service, &shop.key, "control", "text").status;
    assert_eq!((ask(), ask()), (201, 201));
    shop.sql("UPDATE idempotency_records SET fingerprint = key_hash");
    assert_eq!(ask(), 422);
}
