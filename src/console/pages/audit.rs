//! The page of the audit, for staff.

use askama::Template;
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use crate::console::error::PageError;
use crate::console::form::pagination::{Links, ListPage, Place, newest_first};
use crate::console::form::submission::Form;
use crate::console::layout::{Site, page};
use crate::console::session::current_user::SignedIn;
use crate::console::shown::times;
use crate::domain::{AuditEntry, AuditQuery, PageLimit, PageQuery, Role, Timestamp};

#[derive(Template)]
#[template(path = "console/audit.html")]
struct List<'a> {
    site: Site<'a>,
    entries: Vec<AuditEntry>,
    links: Links<i64>,
}

pub async fn list(who: SignedIn, uri: Uri) -> Result<Response, PageError> {
    if who.session.role != Role::Staff {
        return Err(PageError::forbidden("Only staff can see the audit."));
    }
    let place = Place::of_numbered(&Form::of_query(&uri))?;
    let (store, since) = (&who.api().store, Timestamp::from_milliseconds(0));
    let read = |direction, after, limit| async move {
        let page = PageQuery { limit, status: None, after, direction };
        store.list_audit(&AuditQuery { page, since }).await
    };
    let ListPage { entries, links } = newest_first(&place, PageLimit::default(), |entry| entry.id, read).await?;
    Ok(page(StatusCode::OK, &List { site: Site::new(&who, "Audit", "audit"), entries, links }))
}
