//! The messages of one account delay those of another by 30 seconds at most, at any number.

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

/// Queues messages in one transaction.
async fn queue(world: &World, account: AccountId, (number, text): Messages) {
    let process = running(world).await;
    let Store::Sqlite(db) = &*process.store else { unreachable!() };
    let (ids, now) = (MessageIds::default(), world.clock.now());
    let messages: Vec<_> =
        (0..number).map(|_| Message::new(&ids, account, MessageText::parse(text.into()).unwrap(), now)).collect();
    let insert = "INSERT INTO messages (account_id, id, message, created_at) VALUES (?1, ?2, ?3, ?4)";
    let inserted = db.submit(Atomicity::Statement, Effect::Unlisted, move |conn| {
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
