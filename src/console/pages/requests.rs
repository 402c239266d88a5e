//! The pages of the account's API requests: a list, and on staging a page for each.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use crate::api::Operation;
use crate::api::recorder::recent::REQUESTS;
use crate::api::recorder::record::{Exchange, RecordedRequest, SHOWN};
use crate::console::form::{Form, Path, pagination, parse_integer};
use crate::console::session::SignedIn;
use crate::console::shown::{curl, times};
use crate::console::{PageError, Site, page};
use crate::domain::{Invalid, KeyId};

#[derive(Template)]
#[template(path = "console/requests.html")]
struct List<'a> {
    site: Site<'a>,
    has_requests: bool,
    requests: Vec<Row<'a>>,
    with_inactive_key: Vec<Row<'a>>,
    /// The filters, as they were entered.
    parameters: Form,
    keys: &'a Keys,
}

#[derive(Template)]
#[template(path = "console/request.html")]
struct Details<'a> {
    site: Site<'a>,
    row: Row<'a>,
    exchange: &'a Exchange,
    curl: Option<String>,
}

/// A request, and its key's name and hint.
struct Row<'a> {
    request: &'a RecordedRequest,
    key: Option<&'a (String, String)>,
}

/// Names and hints of keys. A key of a request is missing if the store did not find it.
type Keys = BTreeMap<i64, (String, String)>;

impl<'a> Row<'a> {
    fn of(request: &'a RecordedRequest, keys: &'a Keys) -> Self {
        Self { request, key: keys.get(&request.owner.key.0) }
    }

    /// The name of the operation, or the method and path of a request without one.
    fn name(&self) -> String {
        self.request.operation.map_or_else(|| self.request.line.shown(), |operation| operation.id().to_owned())
    }

    fn duration(&self) -> String {
        format!("{:.1} ms", self.request.took.as_secs_f64() * 1_000.0)
    }
}

/// The results by which the list is filtered: value and text.
const RESULTS: [(&str, &str); 3] = [("", "All"), ("successful", "Successful"), ("failed", "Failed")];

/// The requests that the list shows.
struct Filter {
    is_failed: Option<bool>,
    operation: Option<Operation>,
    key: Option<i64>,
}

impl Filter {
    /// Parses the query of the list's address. Empty parameters count as missing.
    fn of(parameters: &Form) -> Result<Self, PageError> {
        let is_failed = |result: &str| match result {
            "successful" => Ok(false),
            "failed" => Ok(true),
            _ => Err(Invalid("must be successful or failed".into())),
        };
        let operation =
            |id: &str| Operation::with_id(id).ok_or_else(|| Invalid("must be one of the API, such as listPets".into()));
        Ok(Self {
            is_failed: pagination::filter(parameters, "result", is_failed)?,
            operation: pagination::filter(parameters, "operation", operation)?,
            key: pagination::filter(parameters, "key", parse_integer)?,
        })
    }

    fn selects(&self, request: &RecordedRequest) -> bool {
        self.is_failed.is_none_or(|is_failed| request.is_failed() == is_failed)
            && self.operation.is_none_or(|operation| request.operation == Some(operation))
            && self.key.is_none_or(|key| request.owner.key == KeyId(key))
    }
}

pub async fn list(who: SignedIn, uri: Uri) -> Result<Response, PageError> {
    let parameters = Form::of_query(&uri);
    let filter = Filter::of(&parameters)?;
    let kept = who.api().account_requests.of(who.session.account);
    let keys = keys_of(&who, &kept).await?;
    let rows = |is_key_inactive| {
        let shown =
            kept.iter().filter(|request| request.owner.is_key_inactive == is_key_inactive && filter.selects(request));
        shown.map(|request| Row::of(request, &keys)).take(REQUESTS).collect()
    };
    let list = List {
        site: Site::new(&who, "Requests", "requests"),
        has_requests: !kept.is_empty(),
        requests: rows(false),
        with_inactive_key: rows(true),
        keys: &keys,
        parameters,
    };
    Ok(page(StatusCode::OK, &list))
}

pub async fn show(who: SignedIn, Path(id): Path<String>) -> Result<Response, PageError> {
    let gone = || PageError::not_found("This request is no longer kept, or it was sent to another process.");
    let found = id.parse().ok().and_then(|id| who.api().account_requests.find(who.session.account, id));
    let request = found.ok_or_else(gone)?;
    let exchange = request.exchange.as_ref().ok_or_else(gone)?;
    let keys = keys_of(&who, std::slice::from_ref(&request)).await?;
    let root = who.addresses.base_url_of(Some(request.listener)).root();
    let row = Row::of(&request, &keys);
    let title = row.name();
    let site = Site::new(&who, &title, "requests");
    let details = Details { site, row, exchange, curl: curl::command(root, exchange) };
    Ok(page(StatusCode::OK, &details))
}

/// Reads names and hints of the keys in `requests`, which are few.
async fn keys_of(who: &SignedIn, requests: &[Arc<RecordedRequest>]) -> Result<Keys, PageError> {
    let mut keys = Keys::new();
    for request in requests {
        if !keys.contains_key(&request.owner.key.0)
            && let Some(key) = who.api().store.find_key_of(who.session.account, request.owner.key).await?
        {
            keys.insert(key.id.0, (key.name, key.hint));
        }
    }
    Ok(keys)
}
