//! A user of the console, whose browser only keeps a cookie.

use std::net::SocketAddr;

use crate::client::{Request, Response};

pub const PASSWORD: &str = "correct horse battery";

pub struct ConsoleUser {
    pub address: SocketAddr,
    /// `name=value` of the last `Set-Cookie`.
    pub cookie: Option<String>,
}

impl ConsoleUser {
    pub fn new(service: impl Into<SocketAddr>) -> Self {
        Self { address: service.into(), cookie: None }
    }

    /// Signs up, which also signs in.
    pub async fn signed_in(service: impl Into<SocketAddr>, email: &str) -> Self {
        let mut person = Self::new(service);
        let answer = person.post("/sign-up", &[("email", email), ("password", PASSWORD)]).await;
        assert_eq!((answer.status(), answer.header("location")), (303, Some("./")), "{}", answer.body);
        person
    }

    pub async fn sign_in(&mut self, email: &str, password: &str) {
        let answer = self.post("/sign-in", &[("email", email), ("password", password)]).await;
        assert_eq!((answer.status(), answer.header("location")), (303, Some("./")), "{}", answer.body);
    }

    pub async fn get(&mut self, path: &str) -> Response {
        self.send(self.request("GET", path)).await
    }

    /// The id of the account's only key.
    pub async fn key_id(&mut self) -> String {
        let page = self.get("/keys").await.body;
        between(&page, "keys/", "/revoke").rsplit('/').next().unwrap().to_owned()
    }

    /// Sends a form as a page of the console does.
    pub async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Response {
        self.send(self.with_cookie(form(self.address, path, fields))).await
    }

    /// A request with this browser's cookie.
    pub fn request(&self, method: &str, path: &str) -> Request {
        self.with_cookie(Request::new(self.address, method, path))
    }

    fn with_cookie(&self, request: Request) -> Request {
        match &self.cookie {
            Some(cookie) => request.header("cookie", &format!("theme=dark; {cookie}")),
            None => request,
        }
    }

    pub async fn send(&mut self, request: Request) -> Response {
        let answer = request.send().await;
        if let Some(cookie) = answer.cookie() {
            self.cookie = Some(cookie).filter(|cookie| !cookie.ends_with('='));
        }
        answer
    }

    pub async fn is_signed_in(&mut self) -> bool {
        self.get("/").await.body.contains("Sign out")
    }

    /// Creates a key and returns it as the page shows it.
    pub async fn key(&mut self, name: &str) -> String {
        let page = self.fill_in("/keys/new", &[("name", name), ("expiry", "never"), ("access", "write")]).await;
        assert_eq!(page.status(), 200, "{}", page.body);
        code(&page.body, "key")
    }

    /// Opens a form that creates a key and sends it with these fields.
    pub async fn fill_in(&mut self, path: &str, fields: &[(&str, &str)]) -> Response {
        let form = self.get(path).await.body;
        let newest = between(&form, "name=\"newest\" value=\"", "\"");
        self.post(path, &[fields, &[("newest", newest)]].concat()).await
    }
}

/// A form as a page of the console sends it, without a cookie.
pub fn form(address: SocketAddr, path: &str, fields: &[(&str, &str)]) -> Request {
    Request::new(address, "POST", path).header("origin", &format!("http://{address}")).form(fields)
}

/// The text of a `code` element of a page.
pub fn code(page: &str, id: &str) -> String {
    unescaped(between(page, &format!("<code id=\"{id}\">"), "</code>"))
}

/// The text of escaped HTML.
pub fn unescaped(html: &str) -> String {
    html.replace("&#34;", "\"").replace("&#39;", "'").replace("&#60;", "<").replace("&#62;", ">").replace("&#38;", "&")
}

/// The part of a page between two texts.
pub fn between<'p>(page: &'p str, before: &str, after: &str) -> &'p str {
    let start = page.find(before).unwrap_or_else(|| panic!("{before:?} is not in {page}")) + before.len();
    let length = page[start..].find(after).unwrap_or_else(|| panic!("{after:?} does not follow in {page}"));
    &page[start..start + length]
}
