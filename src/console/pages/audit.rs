//! The page of the audit, for staff.

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use crate::console::form::{Form, Links, Place, newest_first, pagination, parse_integer};
use crate::console::session::SignedIn;
use crate::console::shown::times;
use crate::console::{PageError, Site, page};
use crate::domain::time::duration;
use crate::domain::{AuditEntry, AuditFilter, Email, Invalid, PageLimit, PageQuery, Role, Timestamp};

#[derive(Template)]
#[template(path = "console/audit.html")]
struct List<'a> {
    site: Site<'a>,
    /// The filters, as they were entered.
    parameters: Form,
    entries: Vec<AuditEntry>,
    links: Links<i64>,
}

pub async fn list(who: SignedIn, uri: Uri) -> Result<Response, PageError> {
    if who.session.role != Role::Staff {
        return Err(PageError::forbidden("Only staff can see the audit."));
    }
    let parameters = Form::of_query(&uri);
    let filter = filter(&parameters, who.api().clock.now())?;
    let place = Place::of_numbered(&parameters)?;
    let (store, filter) = (&who.api().store, &filter);
    let read = |direction, after, limit| async move {
        store.list_audit(filter, PageQuery { limit, status: None, after, direction }).await
    };
    let (entries, links) = newest_first(place, PageLimit::default(), |entry| entry.id, read).await?;
    Ok(page(StatusCode::OK, &List { site: Site::new(&who, "Audit", "audit"), parameters, entries, links }))
}

/// Parses the filters in the page's address, which are those of `petstore audit`.
fn filter(parameters: &Form, now: Timestamp) -> Result<AuditFilter, PageError> {
    let text = |name| pagination::filter(parameters, name, |text| Ok(text.to_owned()));
    let invalid = |_| Invalid("must be a number and s, m, h or d, for instance 30d".into());
    let before_now =
        |name| pagination::filter(parameters, name, |text| duration(text).map(|time| now.minus(time)).map_err(invalid));
    Ok(AuditFilter {
        since: before_now("since")?.unwrap_or_default(),
        until: before_now("until")?,
        account: pagination::filter(parameters, "account", Email::parse)?,
        action: text("action")?,
        key: pagination::filter(parameters, "key", parse_integer)?,
        subject: text("subject")?,
    })
}
