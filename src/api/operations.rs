//! The operation table: every operation of the service, with its permission, id, methods, listener and path.
//!
//! Dispatch, 404, 405 and `Allow`, metrics labels, the scopes of idempotency keys, CORS and the tests read it. To add an
//! operation, add a row to `operations!` and an arm to `execute`, which calls the handler.

use axum::http::Method;
use percent_encoding::percent_decode_str;

use super::input::query_and_body::integer;
use crate::domain::names;

/// Declares the operations and their table, in the same order.
macro_rules! operations {
    ($(($operation:ident, $permission:ident, $id:literal, $methods:ident, $listener:ident, $path:literal),)+) => {
        /// An operation of the service, in the order of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Operation { $($operation),+ }

        static TABLE: [Row; Operation::COUNT] = [$(Row {
            operation: $operation, permission: $permission, id: $id, methods: $methods, listener: $listener, path: $path,
            template: Template::of($path),
        }),+];

        impl Operation {
            pub const COUNT: usize = Self::ALL.len();
            pub const ALL: [Self; [$($id),+].len()] = [$($operation),+];
        }
    };
}

names! {
    /// A listener. Each has addresses and operations of its own.
    pub enum Listener {
        Store = "store",
        Messages = "messages",
        Ops = "ops",
    }
}

use Operation::*;

const STORE: Option<Listener> = Some(Listener::Store);
const MESSAGES: Option<Listener> = Some(Listener::Messages);
const OPS: Option<Listener> = Some(Listener::Ops);
const EVERY: Option<Listener> = None;

/// HEAD is answered wherever GET is.
const GET: &[Method] = &[Method::GET, Method::HEAD];
const POST: &[Method] = &[Method::POST];
const DELETE: &[Method] = &[Method::DELETE];

operations! {
    (ListPets, Account, "listPets", GET, STORE, "/v1/pets"),
    (CreatePet, Account, "createPet", POST, STORE, "/v1/pets"),
    (GetPet, Account, "getPet", GET, STORE, "/v1/pets/{petId}"),
    (ListOrders, Account, "listOrders", GET, STORE, "/v1/store/orders"),
    (PlaceOrder, Account, "placeOrder", POST, STORE, "/v1/store/orders"),
    (GetOrder, Account, "getOrder", GET, STORE, "/v1/store/orders/{orderId}"),
    (ApproveOrder, Staff, "approveOrder", POST, STORE, "/v1/store/orders/{orderId}/approve"),
    (DeliverOrder, Staff, "deliverOrder", POST, STORE, "/v1/store/orders/{orderId}/deliver"),
    (CancelOrder, Account, "cancelOrder", POST, STORE, "/v1/store/orders/{orderId}/cancel"),
    (SendMessage, Account, "sendMessage", POST, MESSAGES, "/v1/messages"),
    (ListMessages, Account, "listMessages", GET, MESSAGES, "/v1/messages"),
    (GetLiveness, Anyone, "getLiveness", GET, EVERY, "/livez"),
    (GetReadiness, Anyone, "getReadiness", GET, EVERY, "/readyz"),
    (GetMetrics, Anyone, "getMetrics", GET, OPS, "/metrics"),
    (GetDocument, Anyone, "getDocument", GET, STORE, "/openapi.json"),
    (GetDocument30, Anyone, "getDocument30", GET, STORE, "/openapi-3.0.json"),
    (GetSecurityTxt, Anyone, "getSecurityTxt", GET, STORE, "/.well-known/security.txt"),
    (ListRequests, Anyone, "listRequests", GET, OPS, "/requests"),
    (DeleteRequests, Anyone, "deleteRequests", DELETE, OPS, "/requests"),
}

/// The permission that an operation requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Clients without an API key, too, unless the handler checks it.
    Anyone,
    /// Every account. Keys that only read may call it if it only reads.
    Account,
    /// Accounts with the role of staff, as [`Self::Account`].
    Staff,
}

use Permission::*;

struct Row {
    operation: Operation,
    permission: Permission,
    id: &'static str,
    methods: &'static [Method],
    /// `None` if every listener has the operation.
    listener: Option<Listener>,
    path: &'static str,
    template: Template,
}

/// A path template, split at its parameter.
struct Template {
    prefix: &'static str,
    /// `None` without a parameter.
    suffix: Option<&'static str>,
}

impl Template {
    const fn of(path: &'static str) -> Self {
        let bytes = path.as_bytes();
        let (mut open, mut end) = (0, 0);
        while open < bytes.len() && bytes[open] != b'{' {
            open += 1;
        }
        if open == bytes.len() {
            return Self { prefix: path, suffix: None };
        }
        while bytes[end] != b'}' {
            end += 1;
        }
        Self { prefix: path.split_at(open).0, suffix: Some(path.split_at(end + 1).1) }
    }

    fn matches(&self, path: &str) -> bool {
        if self.suffix.is_some() { self.parameter(path).is_some() } else { path == self.prefix }
    }

    /// The segment of `path` at the parameter's place. It is not empty.
    fn parameter<'p>(&self, path: &'p str) -> Option<&'p str> {
        let segment = path.strip_prefix(self.prefix)?.strip_suffix(self.suffix?)?;
        (!segment.is_empty() && !segment.contains('/')).then_some(segment)
    }
}

/// The result of looking up the method and path of a request on a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Operation(Operation),
    /// The path has operations, this one among them, but none with the request's method.
    OtherMethod(Operation),
    /// The path is not in the table.
    Unknown,
}

impl Target {
    /// Looks up a request.
    pub fn of(listener: Listener, method: &Method, path: &str) -> Self {
        let mut target = Self::Unknown;
        for row in &TABLE {
            if row.operation.is_on(listener) && row.template.matches(path) {
                if row.methods.contains(method) {
                    return Self::Operation(row.operation);
                }
                target = Self::OtherMethod(row.operation);
            }
        }
        target
    }

    /// The operation of the request.
    pub const fn operation(self) -> Option<Operation> {
        if let Self::Operation(operation) = self { Some(operation) } else { None }
    }

    /// An operation at the path of the request, with any method.
    pub const fn at_path(self) -> Option<Operation> {
        match self {
            Self::Operation(operation) | Self::OtherMethod(operation) => Some(operation),
            Self::Unknown => None,
        }
    }
}

impl Operation {
    /// The operations of the API, which the OpenAPI document describes.
    pub fn documented() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|operation| operation.is_documented())
    }

    /// Returns the operation of the API with this `operationId`.
    pub fn with_id(id: &str) -> Option<Self> {
        Self::documented().find(|operation| operation.id() == id)
    }

    pub fn is_documented(self) -> bool {
        self.path().starts_with("/v1/")
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The `operationId`, which is also the scope of the operation's idempotency keys.
    pub fn id(self) -> &'static str {
        self.row().id
    }

    pub fn permission(self) -> Permission {
        self.row().permission
    }

    pub fn method(self) -> &'static Method {
        &self.methods()[0]
    }

    /// The operation's method, and HEAD beside GET.
    pub fn methods(self) -> &'static [Method] {
        self.row().methods
    }

    /// The listener that has the operation. `None` if every listener has it.
    pub fn listener(self) -> Option<Listener> {
        self.row().listener
    }

    pub fn is_on(self, listener: Listener) -> bool {
        self.listener().is_none_or(|only| only == listener)
    }

    /// The path template, for example `/v1/pets/{petId}`.
    pub fn path(self) -> &'static str {
        self.row().path
    }

    /// The path template below the base address, as in the OpenAPI document: `/pets/{petId}`.
    pub fn api_path(self) -> &'static str {
        self.path().strip_prefix("/v1").unwrap_or(self.path())
    }

    /// The path template below the base address, up to its parameter: `/pets/`.
    pub const fn api_prefix(self) -> &'static str {
        TABLE[self as usize].template.prefix.split_at("/v1".len()).1
    }

    /// The path of the operation on the resource with this id, which only some operations have.
    pub fn path_of(self, id: Option<i64>) -> String {
        let Template { prefix, suffix } = self.row().template;
        match (suffix, id) {
            (Some(suffix), Some(id)) => format!("{prefix}{id}{suffix}"),
            _ => self.path().to_owned(),
        }
    }

    /// The id at the place of the template's parameter. `None` if it is not an int64.
    pub fn id_in(self, path: &str) -> Option<i64> {
        let segment = self.row().template.parameter(path)?;
        // Digits may be percent-encoded (RFC 3986, section 6.2.2.2), but rarely are.
        integer(segment).or_else(|| integer(&percent_decode_str(segment).decode_utf8().ok()?))
    }

    /// Returns whether the operation is a health check, which is not traced.
    pub const fn is_health_check(self) -> bool {
        matches!(self, GetLiveness | GetReadiness)
    }
}
