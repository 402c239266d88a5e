//! The orders page: list the account's own, or all for staff; place orders, change their status.

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use futures_util::future::join_all;

use crate::api::input::query_and_body::integer;
use crate::api::{Operation, Permission};
use crate::console::form::{Form, Links, Path, Place, RequestKey, newest_first, pagination, parse_integer};
use crate::console::session::{CurrentUser, SignedIn};
use crate::console::shown::{ApiCall, Unsent, times};
use crate::console::{PageError, Site};
use crate::domain::{
    AccountId, Email, Order, OrderQuery, OrderStatus, PageLimit, PetQuery, PetStatus, Role, Transition,
};
use crate::store::{self, OrderNames, Store};

#[derive(Template)]
#[template(path = "console/orders.html")]
struct List<'a> {
    site: Site<'a>,
    view: View,
    /// The id of an available animal, for the form's example.
    example: String,
    unsent: Unsent,
    /// True if the list has the orders of all customers.
    is_staff: bool,
    orders: Vec<Row>,
    status: Option<OrderStatus>,
    links: Links<i64>,
    /// The request of the list. `None` after a form.
    listed: Option<ApiCall>,
}

impl List<'_> {
    /// The query of the list's address with its question mark, so that the list keeps its filters after a form. Empty if there
    /// is none.
    fn query(&self) -> String {
        let query = self.view.parameters.without(&[]);
        if query.is_empty() { query } else { format!("?{query}") }
    }

    /// The steps that at least one order allows.
    fn steps(&self) -> impl Iterator<Item = Transition> {
        Transition::ALL.into_iter().filter(|step| self.orders.iter().any(|row| row.steps().any(|one| one == *step)))
    }
}

/// An order as the page shows it.
struct Row {
    order: Order,
    pet_name: String,
    /// The address of the customer, which only staff see.
    customer: Option<String>,
}

impl Row {
    fn new(order: &Order, names: &[OrderNames], is_staff: bool) -> Self {
        // Empty if the store was reset meanwhile.
        let names = names.iter().find(|names| names.order == order.id).cloned().unwrap_or_default();
        Self { order: *order, pet_name: names.pet, customer: is_staff.then_some(names.customer) }
    }

    /// The steps that its status allows to the user.
    fn steps(&self) -> impl Iterator<Item = Transition> {
        let (status, is_staff) = (self.order.status, self.customer.is_some());
        let steps = Transition::ALL.into_iter().filter(move |step| step.apply(status).is_some());
        steps.filter(move |step| is_staff || operation(*step).permission() == Permission::Account)
    }
}

pub async fn list(who: SignedIn, uri: Uri) -> Result<Response, PageError> {
    let parameters = Form::of_query(&uri);
    // Links from an animal fill in its id.
    let form = Form::of(&[("petId", parameters.get("petId"))]);
    View { parameters, ..View::new(form, RequestKey::generate()) }.show(&who).await
}

pub async fn place(who: SignedIn, mut form: Form) -> Result<Response, PageError> {
    let (key, parse) = (RequestKey::of(&form), |text: String| parse_integer(text.trim()));
    match form.parse("petId", "Enter the id of an animal.", "The animal", parse) {
        Some(pet) => place_order(&who, pet, key, form).await,
        None => View::new(form, key).show(&who).await,
    }
}

/// Redirects to the form with the animal's id, because the address stays in the browser's address bar.
pub async fn show_pet(user: CurrentUser, Path(id): Path<String>) -> Response {
    match integer(&id) {
        Some(id) => user.redirect(&format!("orders?petId={id}")),
        None => user.redirect("orders"),
    }
}

/// Orders an animal from the list.
pub async fn place_from_list(who: SignedIn, Path(id): Path<String>, fields: Form) -> Result<Response, PageError> {
    let Some(pet) = integer(&id) else { return Err(PageError::not_found("There is no page at this address.")) };
    let key = RequestKey::of(&fields).of_entry(pet);
    place_order(&who, pet, key, Form::of(&[("petId", &id), ("prefer", fields.get("prefer"))])).await
}

async fn place_order(who: &SignedIn, pet: i64, key: RequestKey, form: Form) -> Result<Response, PageError> {
    let api_call = ApiCall::post(who, Operation::PlaceOrder, None, &key, body(&pet.into()).to_string(), &form).await;
    let form = if api_call.status.is_success() { Form::default() } else { form };
    done(who, form, key, None, api_call, Form::default()).await
}

pub async fn step(
    who: SignedIn,
    Path((id, step)): Path<(String, String)>,
    uri: Uri,
    fields: Form,
) -> Result<Response, PageError> {
    let (Some(id), Ok(step)) = (integer(&id), Transition::parse(&step)) else {
        return Err(PageError::not_found("There is no page at this address."));
    };
    let key = RequestKey::of(&fields);
    let api_call = ApiCall::post(&who, operation(step), Some(id), &key.of_entry(id), String::new(), &fields).await;
    done(&who, Form::default(), key, Some(id), api_call, Form::of_query(&uri)).await
}

/// Takes a step for each selected order, as one form for each would. The list keeps its filters.
pub async fn step_selected(who: SignedIn, uri: Uri, fields: Form) -> Result<Response, PageError> {
    let incomplete = |_| PageError::bad_request("The form is incomplete. Open its page again.");
    let (step, key) = (Transition::parse(fields.get("step")).map_err(incomplete)?, RequestKey::of(&fields));
    let calls = fields.all("order").filter_map(integer).map(async |id| {
        (id, ApiCall::post(&who, operation(step), Some(id), &key.of_entry(id), String::new(), &fields).await)
    });
    let (mut sent, mut outcomes) = (None::<ApiCall>, Vec::new());
    for (id, api_call) in join_all(calls).await {
        let words = outcome(&who, Some(id), &api_call).await?;
        let words = if words.starts_with("Order ") { words } else { format!("Order {id}: {words}") };
        outcomes.push((api_call.status.is_success(), words));
        // The page has the status of a failure, if there is one.
        if sent.as_ref().is_none_or(|sent| sent.status.is_success()) {
            sent = Some(api_call);
        }
    }
    if outcomes.is_empty() {
        outcomes.push((false, "Select at least one order.".to_owned()));
    }
    let status_code = sent.as_ref().map_or(StatusCode::UNPROCESSABLE_ENTITY, |sent| sent.status);
    let view = View::new(Form::default(), key.after(status_code));
    View { status_code, parameters: Form::of_query(&uri), sent, outcomes, ..view }.show(&who).await
}

const fn operation(step: Transition) -> Operation {
    match step {
        Transition::Approve => Operation::ApproveOrder,
        Transition::Deliver => Operation::DeliverOrder,
        Transition::Cancel => Operation::CancelOrder,
    }
}

/// Returns the list after a form. `parameters` select its part; without any, it begins with the order of the form. `order` is
/// the order that the form changes.
async fn done(
    who: &SignedIn,
    form: Form,
    key: RequestKey,
    order: Option<i64>,
    api_call: ApiCall,
    mut parameters: Form,
) -> Result<Response, PageError> {
    let words = outcome(who, order, &api_call).await?;
    if let Some(id) = api_call.body()["id"].as_i64().or(order.filter(|_| api_call.is_unknown))
        && parameters.is_empty()
    {
        parameters = Form::of(&[("from", &id.to_string())]);
    }
    let view = View::new(form, key.after(api_call.status));
    let (status_code, outcomes) = (api_call.status, vec![(api_call.status.is_success(), words)]);
    View { status_code, parameters, sent: Some(api_call), outcomes, ..view }.show(who).await
}

/// Returns the outcome of a form for the user. `order` is the order that the form changes.
async fn outcome(who: &SignedIn, order: Option<i64>, api_call: &ApiCall) -> Result<String, PageError> {
    let answer = &api_call.body();
    let status = answer["status"].as_str().and_then(|status| OrderStatus::parse(status).ok());
    let done = match (answer["id"].as_i64(), answer["petId"].as_i64(), status) {
        (Some(id), Some(pet_id), Some(status)) => {
            let pet = who.api().store.find_pet(pet_id).await?;
            let name = pet.map_or_else(String::new, |pet| pet.name.to_string());
            let (status, pet) = (status.as_str(), status.pet().as_str());
            // Isolated, so that the direction of the name does not change the sentence around it.
            format!("Order {id} is now {status}. \u{2068}{name}\u{2069} (animal {pet_id}) is {pet}.")
        }
        _ => String::new(),
    };
    Ok(match order {
        // The list has no button to repeat a step that was executed.
        Some(id) if api_call.is_unknown => format!(
            "{}The result is unknown. The list shows the status of order {id}. If it has not changed, repeat the step: it counts only once.",
            api_call.origin()
        ),
        _ => api_call.outcome(&done, "Nothing was changed."),
    })
}

/// A part of the list, and the form that places an order.
struct View {
    status_code: StatusCode,
    /// Those of the page's address, which select the part.
    parameters: Form,
    /// The form that places an order.
    form: Form,
    /// The idempotency key of a new order. The buttons that change an order add its id.
    key: RequestKey,
    /// A request of the submitted form.
    sent: Option<ApiCall>,
    /// The outcomes of the submitted form, and whether each is a success.
    outcomes: Vec<(bool, String)>,
}

impl View {
    /// The newest orders, before a request is sent. Its status is 422 if the form has an error.
    fn new(form: Form, key: RequestKey) -> Self {
        let (parameters, outcomes) = (Form::default(), Vec::new());
        Self { status_code: form.status(), parameters, form, key, sent: None, outcomes }
    }

    async fn show(self, who: &SignedIn) -> Result<Response, PageError> {
        let (store, is_staff) = (&who.api().store, who.session.role == Role::Staff);
        let status = pagination::filter(&self.parameters, "status", OrderStatus::parse)?;
        // For staff only, because it reads all orders.
        let animal = pagination::filter(&self.parameters, "animal", parse_integer)?.filter(|_| is_staff);
        let place = Place::of_numbered(&self.parameters)?;
        let customer = match pagination::filter(&self.parameters, "customer", Email::parse)? {
            _ if !is_staff => Some(who.session.account),
            // No account has the id 0.
            Some(email) => Some(store.find_account(&email).await?.map_or(AccountId(0), |account| account.id)),
            None => None,
        };
        let read = |direction, after, limit| async move {
            let (mut orders, query) = (Vec::new(), OrderQuery { limit, status, after, direction });
            if let Some(animal) = animal {
                return store.list_orders_of_pet(animal, customer, &query).await;
            }
            let more = store.list_orders(customer, &query, &mut |order| orders.push(order)).await?;
            Ok((orders, more))
        };
        let (entries, links) = newest_first(place, PageLimit::default(), |order: &Order| order.id, read).await?;
        let mut query = pagination::as_api(&entries, &links, status.map(OrderStatus::as_str), |id| id - 1);
        if let (Some(query), true, Some(AccountId(id))) = (&mut query, is_staff, customer) {
            *query += &format!("&accountId={id}");
        }
        // The API has no lists by animal.
        let query = query.filter(|_| self.sent.is_none() && animal.is_none());
        let listed = ApiCall::list(who, Operation::ListOrders, query).await;
        let names = store.order_names(entries.iter().map(|order| order.id).collect()).await?;
        let orders = entries.iter().map(|order| Row::new(order, &names, is_staff)).collect();
        let site = Site::new(who, "Orders", "orders");
        let example = available_pet(store).await?.unwrap_or(1).to_string();
        let shown = body(&self.form.integer_or_example("petId", &example));
        let unsent = ApiCall::unsent(who, Operation::PlaceOrder, &self.key, &self.form, &["petId"], &shown);
        let list = List { site, view: self, example, unsent, is_staff, orders, status, links, listed };
        Ok(ApiCall::page(list.view.status_code, &list, list.view.sent.as_ref().or(list.listed.as_ref())))
    }
}

/// The body of the API request that places an order.
fn body(pet_id: &serde_json::Value) -> serde_json::Value {
    serde_json::json!({ "petId": pet_id })
}

/// Returns the id of the newest animal that can be ordered. `None` if there is none.
async fn available_pet(store: &Store) -> store::Result<Option<i64>> {
    let query = PetQuery { status: Some(PetStatus::Available), ..PetQuery::newest() };
    let mut found = None;
    store.list_pets(&query, &mut |pet| found = Some(pet.id)).await?;
    Ok(found)
}
