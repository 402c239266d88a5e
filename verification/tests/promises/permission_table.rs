//! The permissions that the documentation promises. Written by hand: nothing here comes from `src/api/operations.rs`.

use testkit::{Request, Response, Server, new_message, new_pet};

/// The resource that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The operation has none, or all accounts share it.
    Common,
    Own,
    Others,
    Missing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Customer,
    Staff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Executed, or rejected only because of the state of the object.
    Allowed,
    /// As [`Self::Allowed`], and the list contains rows of other accounts.
    ShowsOthers,
    /// 400 `unknown_parameter`.
    UnknownParameter,
    /// 401.
    Unauthorized,
    /// 403 `forbidden`.
    Forbidden,
    /// 404 `not_found`.
    NotFound,
}

use Object::{Common, Missing, Others, Own};
use Outcome::{Allowed, Forbidden, NotFound, ShowsOthers, UnknownParameter};

/// The outcomes for a customer and for staff, each with a key that may write.
type Row = (Object, Outcome, Outcome);

const FOR_ALL: &[Row] = &[(Common, Allowed, Allowed)];
const OWN_ORDERS: &[Row] = &[(Own, Allowed, Allowed), (Others, NotFound, Allowed), (Missing, NotFound, NotFound)];
/// Customers are rejected before the order is looked up.
const FOR_STAFF: &[Row] = &[(Own, Forbidden, Allowed), (Others, Forbidden, Allowed), (Missing, Forbidden, NotFound)];
/// Without an object, there is no `accountId`.
const LIST: &[Row] = &[
    (Common, Allowed, ShowsOthers),
    (Own, UnknownParameter, Allowed),
    (Others, UnknownParameter, Allowed),
    (Missing, UnknownParameter, Allowed),
];

const ORDERS: &str = "/v1/store/orders";
const APPROVE: &str = "/v1/store/orders/{orderId}/approve";
const MESSAGES: &str = "/v1/messages";

const TABLE: [(&str, &str, &[Row]); 11] = [
    ("GET", "/v1/pets", FOR_ALL),
    ("POST", "/v1/pets", FOR_ALL),
    ("GET", "/v1/pets/{petId}", FOR_ALL),
    ("GET", ORDERS, LIST),
    ("POST", ORDERS, FOR_ALL),
    ("GET", "/v1/store/orders/{orderId}", OWN_ORDERS),
    ("POST", APPROVE, FOR_STAFF),
    ("POST", "/v1/store/orders/{orderId}/deliver", FOR_STAFF),
    ("POST", "/v1/store/orders/{orderId}/cancel", OWN_ORDERS),
    ("POST", MESSAGES, FOR_ALL),
    ("GET", MESSAGES, FOR_ALL),
];

/// A message of another account.
pub const CANARY: &str = "only its sender may read this";

/// The id of no order and no account.
const NOTHING: i64 = 999_999_999;

/// The ids in the requests of an account.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ids {
    pub pet: i64,
    pub account: i64,
    pub order: i64,
    pub others_account: i64,
    pub others_order: i64,
}

/// A method of an operation, with one kind of object.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub method: &'static str,
    pub path: &'static str,
    pub object: Object,
    outcomes: [Outcome; 2],
}

impl Case {
    /// The cases of all operations of the document, also with HEAD. Panics if the table and the document differ.
    pub fn all(service: &Server) -> Vec<Self> {
        let document = service.get("/openapi.json", "").json();
        let documented = document["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().keys().filter(|name| ["get", "post"].contains(&name.as_str()));
            methods.map(move |method| format!("{} /v1{path}", method.to_uppercase()))
        });
        let mut documented: Vec<_> = documented.collect();
        let mut known: Vec<_> = TABLE.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
        documented.sort();
        known.sort();
        assert_eq!(documented, known, "the table lacks an operation, or has one too many");
        let cases = TABLE.iter().flat_map(|&(method, path, rows)| {
            let methods = if method == "GET" { &["GET", "HEAD"][..] } else { &["POST"] };
            let cases = methods.iter().flat_map(move |&method| {
                rows.iter().map(move |&(object, customer, staff)| Self {
                    method,
                    path,
                    object,
                    outcomes: [customer, staff],
                })
            });
            cases.collect::<Vec<_>>()
        });
        cases.collect()
    }

    /// The outcome for an account, with a key that may write or only read.
    pub fn expected(&self, role: Role, only_reads: bool) -> Outcome {
        match self.outcomes[role as usize] {
            _ if only_reads && self.method == "POST" => Forbidden,
            // The response to HEAD has no rows.
            ShowsOthers if self.method == "HEAD" => Allowed,
            outcome => outcome,
        }
    }

    pub fn is_approval(&self) -> bool {
        self.path == APPROVE
    }

    /// The request, without a key.
    pub fn request(&self, service: &Server, ids: &Ids) -> Request {
        let (account, order) = match self.object {
            Own => (ids.account, ids.order),
            Others => (ids.others_account, ids.others_order),
            Common | Missing => (NOTHING, NOTHING),
        };
        let mut path = self.path.replace("{petId}", &ids.pet.to_string()).replace("{orderId}", &order.to_string());
        if self.path == ORDERS && self.object != Common {
            path += &format!("?accountId={account}");
        }
        let address = if self.path == MESSAGES { service.messages() } else { service.store() };
        let request = Request::new(address, self.method, &path);
        match (self.method, self.path) {
            ("POST", "/v1/pets") => request.json(new_pet("Rex")),
            ("POST", ORDERS) => request.json(format!(r#"{{"petId":{}}}"#, ids.pet)),
            ("POST", MESSAGES) => request.json(new_message("Hello")),
            _ => request,
        }
    }

    /// Classifies the response to a request of `account`.
    pub fn observed(&self, response: &Response, account: i64) -> Outcome {
        let (outcome, codes): (_, &[&str]) = match response.status() {
            400 => (UnknownParameter, &["unknown_parameter"]),
            401 => (Outcome::Unauthorized, &["missing_api_key", "invalid_api_key"]),
            403 => (Forbidden, &["forbidden"]),
            404 => (NotFound, &["not_found"]),
            409 => (Allowed, &["conflict"]),
            200..300 if self.method == "GET" && self.shows_others(response, account) => return ShowsOthers,
            200..300 => return Allowed,
            _ => panic!("{self:?}: {response:?}"),
        };
        assert!(self.method == "HEAD" || codes.contains(&response.code().as_str()), "{self:?}: {response:?}");
        outcome
    }

    fn shows_others(&self, response: &Response, account: i64) -> bool {
        match (self.path, self.object) {
            (ORDERS, Common) => response.json().as_array().unwrap().iter().any(|order| order["accountId"] != account),
            (MESSAGES, _) => response.body.contains(CANARY),
            _ => false,
        }
    }
}
