//! Lists of animals, orders, messages and keys: newest first, with links to other pages and a place to begin.

use testkit::ConsoleUser;
use testkit::console::between;

use crate::service::{NOW, Service};
use crate::users::{ADA, signed_in};

/// The addresses of the pages before and after a page.
fn link(page: &str, words: &str) -> Option<String> {
    let nav = between(page, r#"<nav class="pages""#, "</nav>");
    let before = nav.split_once(&format!(">{words}</a>"))?.0;
    let href = before.rsplit_once("href=\"")?.1.split('"').next()?;
    Some(href.trim_start_matches('.').replace("&amp;", "&"))
}

/// The ids of the animals or orders on a page.
fn ids(page: &str) -> Vec<i64> {
    let animals = page.split(r#"data-label="Id">"#).skip(1);
    let orders = page.split(r#"<span class="only-stacked">Order </span>"#).skip(1);
    animals.chain(orders).map(|rest| rest.split('<').next().unwrap().parse().unwrap()).collect()
}

#[tokio::test]
async fn lists_lead_from_the_newest_entry_to_the_oldest_and_back() {
    Service::on_every_database(async |service| {
        service.create_pets(50).await;
        let mut ada = ConsoleUser::signed_in(service, ADA).await;
        for animal in 1..=45 {
            assert_eq!(ada.post("/orders", &[("petId", &animal.to_string())]).await.status(), 201);
        }
        for (list, count) in
            [("/animals", 50), ("/animals?status=pending", 45), ("/orders", 45), ("/orders?status=placed", 45)]
        {
            let pages = [(count - 19..=count), (count - 39..=count - 20), (1..=count - 40)];
            let pages = pages.map(|ids| ids.rev().collect::<Vec<_>>());
            let mut path = Some(list.to_owned());
            let mut seen = Vec::new();
            while let Some(next) = path {
                let page = ada.get(&next).await.body;
                assert_eq!(ids(&page), pages[seen.len()], "{next}");
                assert_eq!(link(&page, "First page").as_deref(), (!seen.is_empty()).then_some(list), "{next}");
                path = link(&page, "Next page");
                seen.push(page);
            }
            assert_eq!(seen.len(), 3, "{list}");
            assert_eq!(link(&seen[0], "Previous page"), None);
            for number in [1, 0] {
                let path = link(&seen[number + 1], "Previous page").unwrap();
                let page = ada.get(&path).await.body;
                assert_eq!(
                    (ids(&page), link(&page, "First page").is_some()),
                    (ids(&seen[number]), number > 0),
                    "{path}"
                );
            }
        }
        // Newer entries than fit on a page before it are shown with older ones.
        assert_eq!(ids(&ada.get("/animals?after=48").await.body), (31..=50).rev().collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn lists_begin_at_an_id() {
    let (service, mut ada) = signed_in().await;
    for path in ["/animals", "/animals?from=7", "/orders", "/orders?from=7&status=placed"] {
        let page = ada.get(path).await.body;
        assert!(link(&page, "First page").is_none() && !page.contains("There are no older"), "{path}: {page}");
    }
    service.create_pets(4).await;
    for animal in ["1", "3", "4"] {
        ada.post("/orders", &[("petId", animal)]).await;
    }
    ada.post("/orders/2/approve", &[]).await;
    for (path, expected, is_first) in [
        ("/animals?from=", vec![4, 3, 2, 1], true),
        ("/animals?from=+2+", vec![2, 1], false),
        ("/animals?from=4", vec![4, 3, 2, 1], true),
        ("/animals?from=9223372036854775807", vec![4, 3, 2, 1], true),
        ("/animals?from=0", vec![], false),
        ("/animals?status=pending&from=2", vec![1], false),
        ("/animals?status=available&from=4", vec![2], true),
        ("/orders?from=2", vec![2, 1], false),
        ("/orders?from=2&status=placed", vec![1], false),
        ("/orders?from=1&status=approved", vec![], false),
    ] {
        let page = ada.get(path).await;
        assert_eq!((page.status(), ids(&page.body)), (200, expected), "{path}");
        assert_eq!(link(&page.body, "First page").is_none(), is_first, "{path}");
    }
    for path in ["/animals?from=x", "/animals?before=x", "/orders?after=x", "/orders?status=lost", "/messages?from=1"] {
        assert_eq!(ada.get(path).await.status(), 400, "{path}");
    }
    // After a form, the list begins with its order.
    let approved = ada.post("/orders/1/approve", &[]).await.body;
    assert_eq!((ids(&approved), link(&approved, "First page").is_some()), (vec![1], true));
}

#[tokio::test]
async fn messages_begin_at_an_id_and_lead_back() {
    let (service, mut ada) = signed_in().await;
    for number in 0..25 {
        service.clock.set(NOW.plus(std::time::Duration::from_secs(number)));
        ada.post("/messages", &[("message", &format!("number {number:02}"))]).await;
    }
    let shown = |page: &str| -> Vec<u32> {
        let texts = page.split(r#"<p class="message">number "#).skip(1);
        texts.map(|rest| rest.split('<').next().unwrap().parse().unwrap()).collect()
    };
    let first = ada.get("/messages").await.body;
    assert_eq!((shown(&first), link(&first, "Previous page")), ((15..25).rev().collect(), None));
    let second = ada.get(&link(&first, "Next page").unwrap()).await.body;
    assert_eq!(shown(&second), (5..15).rev().collect::<Vec<_>>());
    let back = ada.get(&link(&second, "Previous page").unwrap()).await.body;
    assert_eq!((shown(&back), link(&back, "First page")), (shown(&first), None));

    let id = format!("msg_{}", between(&second, "<code>msg_", "</code>"));
    let from = ada.get(&format!("/messages?from={id}")).await.body;
    assert_eq!(shown(&from), shown(&second));
}

#[tokio::test]
async fn keys_lead_from_the_newest_to_the_oldest_and_back() {
    let (_service, mut ada) = signed_in().await;
    for number in 0..45 {
        ada.key(&format!("key {number:02}")).await;
    }
    let shown = |page: &str| -> Vec<u32> {
        let names = page.split(r#"<th scope="row">key "#).skip(1);
        names.map(|rest| rest.split('<').next().unwrap().parse().unwrap()).collect()
    };
    let first = ada.get("/keys?status=active").await.body;
    assert_eq!((shown(&first), link(&first, "Previous page")), ((25..45).rev().collect(), None));
    let second = ada.get(&link(&first, "Next page").unwrap()).await.body;
    let third = ada.get(&link(&second, "Next page").unwrap()).await.body;
    assert_eq!((shown(&third), link(&third, "Next page")), ((0..5).rev().collect(), None));
    let back = ada.get(&link(&third, "Previous page").unwrap()).await.body;
    assert_eq!((shown(&back), link(&back, "First page").is_some()), (shown(&second), true));
    let back = ada.get(&link(&back, "Previous page").unwrap()).await.body;
    assert_eq!((shown(&back), link(&back, "First page")), (shown(&first), None));
}

#[tokio::test]
async fn keys_are_filtered_by_state_and_show_their_requests() {
    let (service, mut ada) = signed_in().await;
    let busy = ada.key("busy").await;
    let idle = ada.key("idle").await;
    for _ in 0..3 {
        assert_eq!(service.request("GET", "/v1/pets").key(&busy).send().await.status(), 200);
    }
    assert_eq!(service.request("GET", "/v1/pets?limit=0").key(&busy).send().await.status(), 400);
    ada.fill_in("/keys/new", &[("name", "short"), ("expiry", "30d"), ("access", "write")]).await;
    let newest = service.store.list_keys().await.unwrap();
    let busy_id = newest.iter().find(|key| key.name == "busy").unwrap().id.0;
    // A change of any key empties the cache, but not the counts.
    assert_eq!(ada.post(&format!("/keys/{busy_id}/revoke"), &[]).await.status(), 303);
    assert_eq!(service.request("GET", "/v1/pets").key(&busy).send().await.status(), 401);
    assert_eq!(service.request("GET", "/v1/pets").key(&idle).send().await.status(), 200);
    service.clock.set(NOW.plus(std::time::Duration::from_secs(31 * 24 * 3600)));
    ada.sign_in(ADA, testkit::console::PASSWORD).await;

    for (path, expected) in [
        ("/keys", vec![("short", "0"), ("idle", "1"), ("busy", "4")]),
        ("/keys?status=active", vec![("idle", "1")]),
        ("/keys?status=expired", vec![("short", "0")]),
        ("/keys?status=revoked", vec![("busy", "4")]),
    ] {
        let page = ada.get(path).await.body;
        let rows = page.split(r#"<th scope="row">"#).skip(1);
        let shown: Vec<_> = rows
            .map(|row| (row.split([' ', '<']).next().unwrap(), between(row, r#"data-label="Requests">"#, "<")))
            .collect();
        assert_eq!(shown, expected, "{path}");
    }
    assert_eq!(ada.get("/keys?status=works").await.status(), 400);
    let mut grace = ConsoleUser::signed_in(&service, "grace@example.com").await;
    assert!(grace.get("/keys?status=revoked").await.body.contains("You have no revoked keys."));
}
