//! The responses that clients received. Every later response and the final database must agree with them.

use std::collections::BTreeMap;

use petstore::api::RateLimit;
use petstore::domain::order::OrderStatus;
use petstore::domain::{AccountId, MessageId, Role, Timestamp};
use std::time::Duration;
use tokio::time::Instant;

/// Name of a request with an effect: no two requests have the same one, and a retry has that of the first attempt.
pub type Tag = i64;

/// Time within which other processes notice a revocation: the interval of the cache's checks, and a tick of the timer.
const REVOCATION_BOUND: Duration = Duration::from_millis(255);

/// The first account. All others are customers'.
const STAFF: AccountId = AccountId(1);

/// The role of an account.
pub fn role(account: AccountId) -> Role {
    if account == STAFF { Role::Staff } else { Role::Customer }
}

/// A violated promise.
pub type Checked = Result<(), String>;

#[derive(Default)]
pub struct Ledger {
    /// Each animal that a client knows: its id and its request.
    pub pets: BTreeMap<i64, Tag>,
    pet_ids: BTreeMap<Tag, i64>,
    pub orders: BTreeMap<i64, KnownOrder>,
    order_ids: BTreeMap<Tag, i64>,
    pub messages: BTreeMap<Tag, MessageId>,
    pub keys: Vec<KnownKey>,
    /// The times of allowed requests by process start and account, in milliseconds.
    allowed: BTreeMap<(u64, i64), Vec<u64>>,
}

pub struct KnownOrder {
    pub account: AccountId,
    pub pet: i64,
    pub tag: Tag,
    /// The last acknowledged status.
    pub status: OrderStatus,
}

#[derive(Clone)]
pub struct KnownKey {
    pub text: String,
    pub id: i64,
    pub account: AccountId,
    pub expires_at: Option<Timestamp>,
    /// A revocation was attempted.
    pub is_revoking: bool,
    /// When a revocation was acknowledged, and by which process start.
    pub revoked: Option<(Instant, u64)>,
}

impl Ledger {
    pub fn new(keys: Vec<KnownKey>) -> Self {
        Self { keys, ..Self::default() }
    }

    /// Notes that an animal is there: a client created or read it.
    pub fn note_pet(&mut self, id: i64, tag: Tag) -> Checked {
        let other = *self.pets.entry(id).or_insert(tag);
        if other != tag {
            return Err(format!("id {id} of animal {other} was given to animal {tag}"));
        }
        let other = *self.pet_ids.entry(tag).or_insert(id);
        if other == id { Ok(()) } else { Err(format!("request {tag} created animals {other} and {id}")) }
    }

    /// Checks a page of animals after `after`, with the animals that were known when it was requested.
    pub fn check_page(&mut self, known: &[i64], after: i64, page: &[(i64, Tag)], more: bool) -> Checked {
        let end = if more { page.last().map_or(after, |(id, _)| *id) } else { i64::MAX };
        let missing =
            known.iter().find(|id| (after + 1..=end).contains(id) && !page.iter().any(|(there, _)| there == *id));
        if let Some(missing) = missing {
            return Err(format!("a list after {after} lacks animal {missing}"));
        }
        page.iter().try_for_each(|(id, tag)| self.note_pet(*id, *tag))
    }

    pub fn note_order(&mut self, id: i64, order: KnownOrder) -> Checked {
        let tag = order.tag;
        let known = self.orders.entry(id).or_insert(order);
        if known.tag != tag {
            return Err(format!("id {id} of order {} was given to order {tag}", known.tag));
        }
        let other = *self.order_ids.entry(tag).or_insert(id);
        if other == id { Ok(()) } else { Err(format!("request {tag} placed orders {other} and {id}")) }
    }

    /// Notes a status that `account` was told. Responses may overtake each other.
    pub fn note_status(&mut self, account: AccountId, id: i64, status: OrderStatus) -> Checked {
        let order = self.orders.get_mut(&id).expect("a known order");
        if role(account) == Role::Customer && order.account != account {
            return Err(format!("order {id} of account {} was shown to customer {}", order.account.0, account.0));
        }
        let known = &mut order.status;
        if can_follow(status, *known) {
            *known = status;
        } else if !can_follow(*known, status) {
            return Err(format!("order {id} was {known:?} and became {status:?}"));
        }
        Ok(())
    }

    pub fn note_message(&mut self, tag: Tag, id: MessageId) -> Checked {
        let other = *self.messages.entry(tag).or_insert(id);
        if other == id { Ok(()) } else { Err(format!("request {tag} sent messages {other} and {id}")) }
    }

    /// Checks whether a key was rightly accepted, or rejected, by a process that was started as `incarnation`.
    pub fn check_key(
        &self,
        key: usize,
        accepted: Option<(AccountId, Role)>,
        incarnation: u64,
        steady: Timestamp,
    ) -> Checked {
        let key = &self.keys[key];
        let is_expired = key.expires_at.is_some_and(|expiry| expiry <= steady);
        let Some((account, accepted_as)) = accepted else {
            let is_right = is_expired || key.is_revoking;
            return if is_right { Ok(()) } else { Err(format!("valid key {} was rejected", key.id)) };
        };
        if account != key.account {
            return Err(format!("key {} of account {} was taken for one of {}", key.id, key.account.0, account.0));
        }
        if accepted_as != role(account) {
            return Err(format!("account {} was taken for {}", account.0, accepted_as.as_str()));
        }
        if is_expired {
            return Err(format!("key {} was accepted after its expiry", key.id));
        }
        match key.revoked {
            Some((at, by)) if incarnation == by || at.elapsed() > REVOCATION_BOUND => {
                Err(format!("key {} was accepted {:?} after its revocation", key.id, at.elapsed()))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no period has more requests than the burst and what the rate allows in it.
    pub fn check_rate(&mut self, incarnation: u64, account: AccountId, limit: RateLimit, now: Duration) -> Checked {
        let (now, window) = (now.as_millis() as u64, limit.window.as_millis() as u64);
        let (burst, times) = (u64::from(limit.requests), self.allowed.entry((incarnation, account.0)).or_default());
        times.push(now);
        for (before, since) in times.iter().enumerate() {
            let count = (times.len() - before) as u64;
            if count * window > burst * window + (now - since) * burst {
                return Err(format!(
                    "account {} sent {count} requests in {} ms, limit {limit}",
                    account.0,
                    now - since
                ));
            }
        }
        Ok(())
    }
}

/// Returns whether an order of one status can have another later.
pub fn can_follow(later: OrderStatus, earlier: OrderStatus) -> bool {
    use OrderStatus::{Approved, Cancelled, Delivered, Placed};
    later == earlier || matches!((earlier, later), (Placed, _) | (Approved, Delivered | Cancelled))
}
