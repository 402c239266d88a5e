//! `petstore orders`

use std::collections::HashMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;
use tracing::Level;

use crate::cli::data::database::find_account_id;
use crate::cli::terminal::progress::counted;
use crate::cli::terminal::table::{Listed, PrintedList};
use crate::cli::{Outcome, actor, tell, with_store};
use crate::config::{Common, one_of};
use crate::domain::order::TransitionError;
use crate::domain::time::duration;
use crate::domain::{
    AccountId, Direction, Email, Order, OrderQuery, OrderStatus, OrderTransition, PageLimit, Role, Timestamp,
    Transition,
};
use crate::runtime::clock::Clock;
use crate::store::{Outcome as Written, Store};

/// Orders are created in the order of their ids, by clocks that differ by less than this.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(60 * 60);

#[derive(Subcommand, Debug)]
pub enum Orders {
    List(List),
    /// Approve placed orders
    Approve(Ids),
    /// Deliver approved orders
    Deliver(Ids),
    /// Cancel orders that are not delivered
    Cancel(Ids),
}

/// List the newest orders
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  petstore orders list --status placed --all
  petstore orders list --customer ada@example.com --since 30d --json")]
pub struct List {
    /// Only orders of this account
    #[arg(long, alias = "account", value_name = "EMAIL", value_parser = Email::parse)]
    customer: Option<Email>,
    /// Only orders with this status
    #[arg(long, value_parser = one_of(&OrderStatus::ALL, OrderStatus::as_str))]
    status: Option<OrderStatus>,
    /// Only orders placed in this last time, for instance 24h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    since: Option<Duration>,
    /// Maximum number of orders
    #[arg(long, value_name = "NUMBER", default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// All orders
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Print a JSON array of objects
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub struct Ids {
    /// Ids of the orders
    #[arg(value_name = "ID", required = true)]
    ids: Vec<i64>,
}

impl Orders {
    pub fn run(self, common: &Common) -> Outcome {
        with_store(common, None, async |store| match self {
            Self::List(list) => list.print(store).await,
            Self::Approve(Ids { ids }) => change(store, &ids, Transition::Approve).await,
            Self::Deliver(Ids { ids }) => change(store, &ids, Transition::Deliver).await,
            Self::Cancel(Ids { ids }) => change(store, &ids, Transition::Cancel).await,
        })
    }
}

impl List {
    async fn print(self, store: &Store) -> Outcome {
        let customer = find_account_id(store, self.customer.as_ref()).await?;
        let since = self.since.map_or(Timestamp::default(), |time| Clock::System.now().minus(time));
        let (mut left, mut after) = (if self.all { u32::MAX } else { self.limit.saturating_add(1) }, None);
        let mut printed = PrintedList::new(self.json);
        loop {
            let limit = PageLimit::new(left.min(PageLimit::MAX.into()).into())?;
            let query = OrderQuery { limit, status: self.status, after, direction: Direction::Descending };
            let mut page: Vec<Order> = Vec::new();
            let more = store.list_orders(customer, &query, &mut |order| page.push(order)).await?;
            let last = page.last().copied();
            after = last.map(|last| last.id);
            let may_follow = more && last.is_some_and(|last| last.created_at >= since.minus(CLOCK_DIFFERENCE));
            page.retain(|order| order.created_at >= since);
            left -= u32::try_from(page.len()).unwrap_or(u32::MAX);
            if left == 0 {
                // It is read only to know that there are more.
                page.pop();
            }
            let names = store.order_names(page.iter().map(|order| order.id).collect()).await?;
            let mut names: HashMap<_, _> = names.into_iter().map(|names| (names.order, names.customer)).collect();
            let rows: Vec<_> = page.iter().map(|order| (*order, names.remove(&order.id).unwrap_or_default())).collect();
            if !printed.add(&rows)? || !may_follow || left == 0 {
                if left == 0 {
                    let newest = counted(self.limit.into(), "order");
                    tell(Level::INFO, &format!("only the newest {newest}: --all lists all"));
                }
                return printed.end();
            }
        }
    }
}

async fn change(store: &Store, ids: &[i64], transition: Transition) -> Outcome {
    let mut unchanged = 0;
    for &order in ids {
        // No account, so each step is audited.
        let (account, role, actor) = (AccountId(0), Role::Staff, Box::new(actor()));
        let change = OrderTransition { account, role, order, transition, actor };
        let why = match store.transition_order(change, None).await? {
            Written::Refused(TransitionError::NotFound) => "it does not exist".to_owned(),
            Written::Refused(TransitionError::WrongStatus { status, .. }) => format!("it is {}", status.as_str()),
            _ => {
                tell(Level::INFO, &format!("order {order} is {}", transition.rule().1.as_str()));
                continue;
            }
        };
        tell(Level::ERROR, &format!("order {order} not changed: {why}"));
        unchanged += 1;
    }
    match unchanged {
        0 => Ok(()),
        _ => Err(format!("{unchanged} of {} not changed", counted(ids.len() as u64, "order")).into()),
    }
}

/// An order, and the customer's address.
impl Listed for (Order, String) {
    const HEAD: &[&str] = &["ID", "ANIMAL", "ACCOUNT", "STATUS", "PLACED", "CHANGED"];

    const FIELDS: &[&str] = &["id", "petId", "account", "status", "createdAt", "updatedAt"];

    /// The fields of the API, and the customer's address.
    fn json(&self) -> Value {
        let (order, email) = self;
        let mut object: Value = serde_json::from_slice(&order.to_json()).expect("an order is JSON");
        object["account"] = email.as_str().into();
        object
    }
}
