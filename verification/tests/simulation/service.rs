//! The requests of clients, as the handlers of the API carry them out.

use std::rc::Rc;
use std::time::Duration;

use petstore::api::admission::keys::Authentication;
use petstore::domain::api_key::{KeyName, NewKey};
use petstore::domain::order::OrderStatus;
use petstore::domain::{
    AccountId, Actor, ApiKey, IdempotencyKey, KeyId, KeyedRequest, Message, MessageId, MessageIds, MessageText,
    NewOrder, NewPet, Order, OrderTransition, Pet, PetName, PetQuery, Role, Timestamp, Transition,
};
use petstore::store::{Outcome, Store, StoreError, StoredResponse, WriteKey};

use crate::bugs::Bug;
use crate::ledger::{KnownKey, Tag};
use crate::process::Process;
use crate::world::World;

#[derive(Clone, Debug)]
pub struct Request {
    /// Index of the key in the ledger.
    pub key: usize,
    pub operation: Operation,
    /// The idempotency key, which is that of the first attempt.
    pub idempotency: Option<Tag>,
    pub is_retry: bool,
}

#[derive(Clone, Debug)]
pub enum Operation {
    CreatePet(Tag),
    SendMessage(Tag),
    PlaceOrder { pet: i64, tag: Tag },
    MoveOrder { order: i64, transition: Transition },
    FindPet(i64),
    ListPets { after: i64 },
    FindOrder(i64),
    CreateKey { lifetime: Option<Duration> },
    RevokeKey(usize),
}

#[derive(Clone, Debug)]
pub enum Response {
    /// The id of a new animal or order.
    Id(i64),
    Message(MessageId),
    Status(OrderStatus),
    Pet(Option<(i64, Tag)>),
    Pets(Vec<(i64, Tag)>, bool),
    Done,
    /// The operation is impossible, for instance an order for an animal that has one.
    Refused,
    /// 401.
    Unauthorized,
    /// 429.
    TooMany,
    /// 503: the outcome is unknown.
    Unavailable,
}

/// Carries out a request in a process.
pub async fn serve(world: &Rc<World>, process: &Process, request: &Request) -> Response {
    let text = world.ledger.borrow().keys[request.key].text.clone();
    let Ok(found) = process.keys.authenticate(text.as_bytes()).await else { return Response::Unavailable };
    let caller = match &found {
        Authentication::Valid(key) => Some((key.grant.account, key.grant.role)),
        Authentication::Inactive(_) | Authentication::Unknown => None,
    };
    let now = world.clock.steady();
    world.check(world.ledger.borrow().check_key(request.key, caller, process.incarnation, now));
    let Some((account, role)) = caller else { return Response::Unauthorized };
    let moves_back = world.plan.planted == Some(Bug::BucketMovesBack) && world.below(4) == 0;
    if !process.limits.take(account).is_allowed && !moves_back {
        return Response::TooMany;
    }
    let (limit, now) = (world.plan.limit, Duration::from_millis(world.clock.steady().as_milliseconds().unsigned_abs()));
    world.check(world.ledger.borrow_mut().check_rate(process.incarnation, account, limit, now));
    match carry_out(world, process, account, role, request).await {
        Ok(response) => response,
        Err(StoreError::Failed(why)) => {
            world.check(Err(format!("a request failed: {why}")));
            Response::Unavailable
        }
        Err(_) => Response::Unavailable,
    }
}

async fn carry_out(
    world: &Rc<World>,
    process: &Process,
    account: AccountId,
    role: Role,
    request: &Request,
) -> petstore::store::Result<Response> {
    let customer = (role == Role::Customer).then_some(account);
    let (store, wall, steady) = (&process.store, world.clock.now(), world.clock.steady());
    let forgets_key = world.plan.planted == Some(Bug::RetryWithoutKey) && request.is_retry;
    let keyed = request.idempotency.filter(|_| !forgets_key).map(|tag| keyed_request(account, tag, steady));
    match request.operation {
        Operation::CreatePet(tag) => {
            let key = keyed.map(|keyed| WriteKey::new(keyed, |pet: &Pet<'static>| stored(pet.id)));
            let pet = NewPet::new(PetName::parse(tag.to_string()).expect("a name"), tag);
            Ok(store.create_pet(pet, key).await.map(|outcome| respond(outcome, |pet| Response::Id(pet.id)))?)
        }
        Operation::SendMessage(tag) => send_message(world, process, account, tag, keyed).await,
        Operation::PlaceOrder { pet, tag } => {
            let key = keyed.map(|keyed| WriteKey::new(keyed, |order: &Order| stored(order.id)));
            let order = NewOrder { account, pet_id: pet, now: Timestamp::from_milliseconds(tag) };
            Ok(respond(store.place_order(order, key).await?, |order| Response::Id(order.id)))
        }
        Operation::MoveOrder { transition: Transition::Approve | Transition::Deliver, .. } if customer.is_some() => {
            Ok(Response::Refused)
        }
        Operation::MoveOrder { order, transition } => {
            let actor = Box::new(Actor::command_line(wall));
            let transition = OrderTransition { account, role, order, transition, actor };
            Ok(respond(store.transition_order(transition, None).await?, |order| Response::Status(order.status)))
        }
        Operation::FindPet(id) => Ok(Response::Pet(store.find_pet(id).await?.map(|pet| named(&pet)))),
        Operation::ListPets { after } => {
            let (mut pets, query) = (Vec::new(), PetQuery { after: Some(after), ..PetQuery::default() });
            let more = store.list_pets(&query, &mut |pet| pets.push(named(&pet))).await?;
            Ok(Response::Pets(pets, more))
        }
        Operation::FindOrder(id) => {
            let order = store.find_order(customer, id).await?;
            Ok(order.map_or(Response::Refused, |order| Response::Status(order.status)))
        }
        Operation::CreateKey { lifetime } => create_key(world, store, account, lifetime).await,
        Operation::RevokeKey(key) => revoke_key(world, process, key).await,
    }
}

async fn send_message(
    world: &Rc<World>,
    process: &Process,
    account: AccountId,
    tag: Tag,
    keyed: Option<KeyedRequest>,
) -> petstore::store::Result<Response> {
    let message = Message::new(
        &MessageIds::default(),
        account,
        MessageText::parse(tag.to_string()).expect("a text"),
        world.clock.now(),
    );
    let id = message.id;
    let key = keyed.map(|keyed| {
        WriteKey::new(keyed, |message: &Message| StoredResponse::json(202, message.id.to_string().into_bytes()))
    });
    if world.plan.planted == Some(Bug::AnswerBeforeCommit) {
        let store = std::sync::Arc::clone(&process.store);
        process.spawn(async move { drop(store.create_message(message, key).await) });
        return Ok(Response::Message(id));
    }
    let outcome = process.store.create_message(message, key).await?;
    process.status.message_queued();
    Ok(match outcome {
        Outcome::Executed(message) => Response::Message(message.id),
        Outcome::Replayed(stored) => {
            let id = std::str::from_utf8(&stored.body).ok().and_then(MessageId::parse);
            Response::Message(id.expect("the id that was stored"))
        }
        other => panic!("{other:?}"),
    })
}

pub async fn create_key(
    world: &Rc<World>,
    store: &Store,
    account: AccountId,
    lifetime: Option<Duration>,
) -> petstore::store::Result<Response> {
    let key = ApiKey::generate(store.deployment());
    let name = KeyName::parse("simulated".into()).expect("a name");
    let new = NewKey::of(&key, account, name, world.clock.steady(), lifetime);
    let expires_at = new.expires_at;
    let id = store.create_key(new, Actor::command_line(world.clock.now())).await?;
    let text = key.expose().to_owned();
    let known = KnownKey { text, id: id.0, account, expires_at, is_revoking: false, revoked: None };
    world.ledger.borrow_mut().keys.push(known);
    Ok(Response::Done)
}

async fn revoke_key(world: &Rc<World>, process: &Process, key: usize) -> petstore::store::Result<Response> {
    let id = {
        let known = &mut world.ledger.borrow_mut().keys[key];
        known.is_revoking = true;
        KeyId(known.id)
    };
    process.store.revoke_key(id, Actor::command_line(world.clock.now())).await?;
    process.keys.note_change();
    let now = (tokio::time::Instant::now(), process.incarnation);
    world.ledger.borrow_mut().keys[key].revoked.get_or_insert(now);
    Ok(Response::Done)
}

fn keyed_request(account: AccountId, tag: Tag, now: Timestamp) -> KeyedRequest {
    let key = IdempotencyKey::parse(tag.to_string().as_bytes()).expect("a key");
    KeyedRequest::new(account, "simulated", &key, "/", "", now)
}

fn stored(id: i64) -> StoredResponse {
    StoredResponse::json(201, id.to_string().into_bytes())
}

fn respond<T: std::fmt::Debug, R: std::fmt::Debug>(
    outcome: Outcome<T, R>,
    executed: impl FnOnce(T) -> Response,
) -> Response {
    match outcome {
        Outcome::Executed(value) => executed(value),
        Outcome::Replayed(stored) => {
            let id = std::str::from_utf8(&stored.body).ok().and_then(|id| id.parse().ok());
            Response::Id(id.expect("the id that was stored"))
        }
        Outcome::Refused(_) => Response::Refused,
        other => panic!("{other:?}"),
    }
}

/// The id of an animal and the request that created it, which is its name.
fn named(pet: &Pet<'_>) -> (i64, Tag) {
    (pet.id, pet.name.parse().unwrap_or(-1))
}
