//! `petstore orders`

use clap::Args;
use serde_json::Value;

use crate::cli::data::database::find_account;
use crate::cli::terminal::table::{Listed, print_list, strip_bidi};
use crate::cli::{Create, Outcome, with_store};
use crate::config::{Common, one_of};
use crate::domain::json::order_json;
use crate::domain::{Direction, Email, Order, OrderQuery, OrderStatus, PageLimit};

subcommands! {
    pub enum Orders {
        List(List),
    }
}

/// List the newest orders
#[derive(Args, Debug)]
pub struct List {
    /// Only orders of this account
    #[arg(long, value_name = "EMAIL", value_parser = Email::parse)]
    account: Option<Email>,
    /// Only orders with this status
    #[arg(long, value_parser = one_of(&OrderStatus::ALL, OrderStatus::as_str))]
    status: Option<OrderStatus>,
    /// Maximum number of orders, 1 to 100
    #[arg(long, value_name = "NUMBER", default_value = "20", value_parser = limit)]
    limit: PageLimit,
    /// Print a JSON array of objects
    #[arg(long)]
    json: bool,
}

impl List {
    fn run(self, common: &Common) -> Outcome {
        with_store(common, Create::Never, async |store| {
            let customer = match &self.account {
                Some(email) => Some(find_account(&store, email).await?.id),
                None => None,
            };
            let Self { status, limit, .. } = self;
            let query = OrderQuery { limit, status, after: None, direction: Direction::Descending };
            let mut orders = Vec::new();
            store.list_orders(customer, &query, &mut |order| orders.push(order)).await?;
            let mut rows = Vec::new();
            for order in orders {
                let email = store.find_email(order.account).await?;
                rows.push((order, email.map_or_else(String::new, |email| email.as_str().to_owned())));
            }
            print_list(&rows, self.json)
        })
    }
}

fn limit(text: &str) -> Result<PageLimit, String> {
    let number = text.parse().map_err(|_| "must be a number".to_owned())?;
    PageLimit::new(number).map_err(|invalid| invalid.to_string())
}

/// An order, and the customer's address.
impl Listed for (Order, String) {
    const HEAD: &[&str] = &["ID", "ANIMAL", "ACCOUNT", "STATUS", "PLACED", "CHANGED"];

    fn cells(&self) -> Vec<String> {
        let (order, email) = self;
        vec![
            order.id.to_string(),
            order.pet_id.to_string(),
            strip_bidi(email),
            order.status.as_str().to_owned(),
            order.created_at.to_string(),
            order.updated_at.to_string(),
        ]
    }

    /// The fields of the API, and the customer's address.
    fn json(&self) -> Value {
        let (order, email) = self;
        let mut object: Value = serde_json::from_slice(&order_json(order)).expect("an order is JSON");
        object["account"] = email.as_str().into();
        object
    }
}
