//! A client: sends requests, retries those that have an idempotency key, and notes what it is told.

use std::rc::Rc;
use std::time::Duration;

use petstore::domain::order::OrderStatus;
use petstore::domain::{AccountId, Role, Transition};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::disk;
use crate::ledger::{Checked, KnownOrder, role};
use crate::service::{Operation, Request, Response, serve};
use crate::tally::Event;
use crate::trace;
use crate::world::World;

/// Sends requests until the faults end.
pub async fn run(world: Rc<World>, number: u64) {
    let account = AccountId(1 + (number % 3) as i64);
    while !world.is_calm() {
        sleep(Duration::from_millis(1 + world.below(400))).await;
        if let Some(request) = choose(&world, account) {
            send(&world, account, request).await;
        }
    }
}

/// Sends a request, and repeats it while its outcome is unknown if it has an idempotency key.
async fn send(world: &Rc<World>, account: AccountId, mut request: Request) {
    let began = world.clock.steady();
    for _ in 0..10 {
        // After a day, the service has forgotten the key.
        if world.clock.steady() >= began.plus(Duration::from_hours(23)) {
            return;
        }
        let known: Vec<i64> = world.ledger.borrow().pets.keys().copied().collect();
        let response = attempt(world, request.clone()).await;
        trace::note_text("client", format!("{account:?} {:?}: {response:?}", request.operation));
        match response {
            Some(Response::Unavailable) | None if request.idempotency.is_some() => {
                request.is_retry = true;
                sleep(Duration::from_millis(1 + world.below(300))).await;
            }
            Some(Response::Unauthorized | Response::TooMany | Response::Refused | Response::Unavailable) | None => {
                return;
            }
            Some(response) => {
                let is_write = matches!(response, Response::Id(_) | Response::Message(_) | Response::Done);
                world.count(if is_write { Event::Acknowledged } else { Event::Response });
                return world.check(note(world, account, &request.operation, &response, &known));
            }
        }
    }
}

/// Sends a request to a process. `None` if no response arrives.
async fn attempt(world: &Rc<World>, request: Request) -> Option<Response> {
    sleep(Duration::from_millis(world.below(5))).await;
    let (reply, response) = oneshot::channel();
    {
        let process = world.any_process()?;
        let (id, world) = (process.id, Rc::clone(world));
        Rc::clone(&process).spawn(async move {
            let response = serve(&world, &process, &request).await;
            drop(process);
            // A process that has stopped sends nothing.
            if !disk::with(|disk| disk.is_dead(id)) {
                let _ = reply.send(response);
            }
        });
    }
    let patience = [Duration::from_millis(1 + world.below(50)), Duration::from_secs(10)];
    let patience = patience[usize::from(world.below(10) > 0)];
    let response = timeout(patience, response).await.ok()?.ok()?;
    sleep(Duration::from_millis(world.below(5))).await;
    // The network loses some responses.
    (world.below(30) > 0).then_some(response)
}

/// Notes what the client was told, and checks it against all it was told before.
fn note(world: &World, account: AccountId, operation: &Operation, response: &Response, known: &[i64]) -> Checked {
    let mut ledger = world.ledger.borrow_mut();
    match (operation, response) {
        (Operation::CreatePet(tag), Response::Id(id)) => ledger.note_pet(*id, *tag),
        (Operation::SendMessage(tag), Response::Message(id)) => ledger.note_message(*tag, *id),
        (Operation::PlaceOrder { pet, tag }, Response::Id(id)) => {
            ledger.note_order(*id, KnownOrder { account, pet: *pet, tag: *tag, status: OrderStatus::Placed })
        }
        (Operation::MoveOrder { order, .. } | Operation::FindOrder(order), Response::Status(status)) => {
            ledger.note_status(account, *order, *status)
        }
        (Operation::FindPet(id), Response::Pet(None)) => Err(format!("animal {id} is gone")),
        (Operation::FindPet(_), Response::Pet(Some((id, tag)))) => ledger.note_pet(*id, *tag),
        (Operation::ListPets { after }, Response::Pets(page, more)) => ledger.check_page(known, *after, page, *more),
        (_, Response::Done) => Ok(()),
        other => panic!("{other:?}"),
    }
}

/// Chooses a request of the account. `None` if there is nothing to ask for.
fn choose(world: &World, account: AccountId) -> Option<Request> {
    let ledger = world.ledger.borrow();
    let keys: Vec<usize> = (0..ledger.keys.len()).filter(|key| ledger.keys[*key].account == account).collect();
    // Mostly a new key, and sometimes an old one, which may be revoked.
    let recent = keys.len().saturating_sub(2);
    let key = if world.below(4) > 0 { recent + world.index(keys.len() - recent) } else { world.index(keys.len()) };
    let key = keys[key];
    let a_pet = || ledger.pets.keys().nth(world.index(ledger.pets.len().max(1))).copied();
    let an_order = || {
        // Customers rarely ask for other accounts' orders.
        let any = role(account) == Role::Staff || world.below(8) == 0;
        let orders = ledger.orders.iter().filter(|(_, order)| any || order.account == account);
        let orders: Vec<_> = orders.map(|(id, _)| *id).collect();
        (!orders.is_empty()).then(|| orders[world.index(orders.len())])
    };
    let tag = world.next_number() as i64;
    let operation = match world.below(100) {
        0..25 => Operation::CreatePet(tag),
        25..50 => Operation::SendMessage(tag),
        50..60 => Operation::PlaceOrder { pet: a_pet()?, tag },
        60..70 => {
            let transitions = [Transition::Approve, Transition::Deliver, Transition::Cancel];
            Operation::MoveOrder { order: an_order()?, transition: transitions[world.index(3)] }
        }
        70..78 => Operation::FindPet(a_pet()?),
        78..84 => Operation::ListPets { after: a_pet().unwrap_or(0) - 1 },
        84..90 => Operation::FindOrder(an_order()?),
        90..96 => {
            let lifetime = [None, Some(Duration::from_secs(5)), Some(Duration::from_hours(1))][world.index(3)];
            Operation::CreateKey { lifetime }
        }
        // The first key of each account stays.
        _ => Operation::RevokeKey(*keys.get(1 + world.index(keys.len()))?),
    };
    let can_repeat =
        matches!(operation, Operation::CreatePet(_) | Operation::SendMessage(_) | Operation::PlaceOrder { .. });
    let idempotency = (can_repeat && world.below(3) > 0).then_some(tag);
    Some(Request { key, operation, idempotency, is_retry: false })
}
