//! The messages of one account delay those of another by 30 seconds at most, at any number. Some hundred accounts that fail,
//! and some that are slow, cause no longer delay.

use std::rc::Rc;
use std::time::Duration;

use petstore::domain::{AccountId, Message, MessageIds, MessageText};
use petstore::store::Store;
use petstore::store::sqlite::{Atomicity, Effect};
use tokio::time::{Instant, sleep};

use crate::machine::Machine;
use crate::plan::Plan;
use crate::process::Process;
use crate::seeds;
use crate::world::World;

const ADA: AccountId = AccountId(1);
const BEN: AccountId = AccountId(2);

/// An account in the middle of others.
const MIDDLE: AccountId = AccountId(1_000);

/// The promise.
const DELAY: Duration = Duration::from_secs(30);

/// A number of messages with the same text.
type Messages = (usize, &'static str);

#[test]
fn one_account_delays_another_by_30_s_at_most() {
    let all_of_ada = [
        (6_000, "5 422"),
        (6_000, "5000 422"),
        (1_000, "5 500"),
        (1_000, "5000 500"),
        (2_000, "10001 no response"),
        (2_000, "9900 200"),
        (20_000, "1 422"),
        (20_000, "1 500"),
    ];
    for bens in [(1, "5 200"), (300, "5 200"), (2_000, "100 200")] {
        let alone = time_of_ben((0, "5 200"), bens, false);
        for adas in all_of_ada {
            for restarts in [false, true] {
                let took = time_of_ben(adas, bens, restarts);
                println!("ada {adas:?}, ben {bens:?}, restarts {restarts}: {took:?} instead of {alone:?}");
                assert!(took <= alone + DELAY, "ada {adas:?}, ben {bens:?}: {took:?} instead of {alone:?}");
            }
        }
    }
}

#[test]
fn failing_and_slow_accounts_delay_another_by_30_s_at_most() {
    for (accounts, messages) in [
        (5, (100, "5 500")),
        (20, (20, "5 500")),
        (300, (1, "5 500")),
        (300, (20, "1 500")),
        (40, (20, "8000 500")),
        (40, (20, "8000 200")),
        (30, (20, "5 429")),
        (1, (500, "9000 200")),
    ] {
        let longest = simulated(async |world| {
            queue_of_many(&world, accounts, messages).await;
            let mut longest = Duration::ZERO;
            // The first is queued before the others have failed, the last after their pauses have grown.
            for number in 1..30 {
                let began = Instant::now();
                queue(&world, MIDDLE, (1, "5 200")).await;
                arrived(&world, MIDDLE, number, 2 * DELAY).await;
                longest = longest.max(began.elapsed());
                sleep(Duration::from_millis(700 * number as u64)).await;
            }
            longest
        });
        println!("{accounts} accounts with {messages:?}: {longest:?}");
        assert!(longest <= DELAY, "{accounts} accounts with {messages:?}: {longest:?}");
    }
}

#[test]
fn slow_account_does_not_delay_another() {
    let longest = simulated(async |world| {
        queue(&world, ADA, (500, "9000 200")).await;
        let mut longest = Duration::ZERO;
        for number in 1..20 {
            sleep(Duration::from_millis(3_700)).await;
            let began = Instant::now();
            queue(&world, BEN, (1, "5 200")).await;
            arrived(&world, BEN, number, DELAY).await;
            longest = longest.max(began.elapsed());
        }
        longest
    });
    assert!(longest <= Duration::from_secs(2), "{longest:?}");
}

#[test]
fn failing_endpoint_gets_one_message_of_an_account_per_pause() {
    let sent = simulated(async |world| {
        queue_of_many(&world, 20, (3, "5 500")).await;
        sleep(Duration::from_mins(20)).await;
        let before = world.web_server.scripted();
        sleep(Duration::from_mins(20)).await;
        world.web_server.scripted() - before
    });
    // A pause takes 2.5 to 5 minutes.
    assert!((20 * 3..=20 * 9).contains(&sent), "{sent}");
}

#[test]
fn later_messages_of_an_account_are_delivered_at_last() {
    let delivered = simulated(async |world| {
        queue(&world, ADA, (600, "5 422")).await;
        queue(&world, ADA, (600, "5 500")).await;
        queue(&world, ADA, (3, "5 200")).await;
        arrived(&world, ADA, 3, Duration::from_hours(24)).await
    });
    assert_eq!(delivered, 3);
}

/// Returns the time until all of Ben's messages have arrived, which are queued half a minute after Ada's.
fn time_of_ben(adas: Messages, bens: Messages, restarts: bool) -> Duration {
    simulated(async |world| {
        queue(&world, ADA, adas).await;
        sleep(Duration::from_secs(30)).await;
        queue(&world, BEN, bens).await;
        let began = Instant::now();
        if restarts {
            sleep(Duration::from_secs(3)).await;
            let (slot, process) = Machine::take_any(&world).expect("the process runs");
            process.stop().await;
            Machine::end(&world, slot, process).await;
        }
        arrived(&world, BEN, bens.0, Duration::from_hours(1)).await;
        world.web_server.arrivals(BEN).into_iter().max().expect("messages arrive") - began
    })
}

fn simulated<T: Send>(work: impl AsyncFnOnce(Rc<World>) -> T + Send) -> T {
    seeds::simulate(
        1,
        |_: &mut _| Plan::quiet(),
        async |world| {
            let machine = tokio::task::spawn_local(Machine::run(Rc::clone(&world)));
            let result = work(Rc::clone(&world)).await;
            world.close();
            machine.await.unwrap();
            result
        },
    )
}

/// Queues messages of accounts around [`MIDDLE`].
async fn queue_of_many(world: &World, accounts: i64, messages: Messages) {
    for number in 0..accounts {
        let offset = number - accounts / 2;
        queue(world, AccountId(MIDDLE.0 + if offset < 0 { offset } else { offset + 1 }), messages).await;
    }
}

/// Queues messages in one transaction. Creates the account if it does not exist.
async fn queue(world: &World, account: AccountId, (number, text): Messages) {
    let process = running(world).await;
    let Store::Sqlite(db) = &*process.store else { unreachable!() };
    let (ids, now) = (MessageIds::default(), world.clock.now());
    let messages: Vec<_> =
        (0..number).map(|_| Message::new(&ids, account, MessageText::parse(text.into()).unwrap(), now)).collect();
    let create = "INSERT OR IGNORE INTO accounts (id, email, email_folded, role, created_at) VALUES (?1, ?1, ?1, 0, 0)";
    let insert = "INSERT INTO messages (account_id, id, message, created_at) VALUES (?1, ?2, ?3, ?4)";
    let inserted = db.submit(Atomicity::Statement, Effect::Unlisted, move |conn| {
        conn.execute(create, [account.0])?;
        for Message { id, account, text, created_at } in &messages {
            conn.execute(insert, (account.0, id.as_bytes(), text.as_str(), created_at.as_milliseconds()))?;
        }
        Ok(())
    });
    inserted.await.unwrap();
    process.status.message_queued();
}

async fn running(world: &World) -> Rc<Process> {
    loop {
        if let Some(process) = world.any_process() {
            return process;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a number of an account's messages have arrived, at most for `limit`. Returns how many have.
async fn arrived(world: &World, account: AccountId, number: usize, limit: Duration) -> usize {
    let began = Instant::now();
    while world.web_server.arrivals(account).len() < number && began.elapsed() < limit {
        sleep(Duration::from_millis(100)).await;
    }
    world.web_server.arrivals(account).len()
}
