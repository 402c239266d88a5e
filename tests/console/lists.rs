//! Lists of animals, orders, messages, keys and the audit: newest first, with links to other pages and a place to begin.

use std::time::Duration;

use testkit::ConsoleUser;
use testkit::console::between;

use crate::service::{NOW, Service};
use crate::users::{ADA, signed_in, staff};

/// The addresses of the pages before and after a page.
fn link(page: &str, words: &str) -> Option<String> {
    let nav = between(page, r#"<nav class="pages""#, "</nav>");
    let before = nav.split_once(&format!(">{words}</a>"))?.0;
    let href = before.rsplit_once("href=\"")?.1.split('"').next()?;
    Some(href.trim_start_matches('.').replace("&amp;", "&").replace("&#38;", "&"))
}

/// The numbers on a page, each after `before`.
fn numbers(page: &str, before: &str) -> Vec<i64> {
    page.split(before).skip(1).map(|rest| rest.split('<').next().unwrap().parse().unwrap()).collect()
}

/// The ids of the animals or orders on a page.
fn ids(page: &str) -> Vec<i64> {
    [numbers(page, r#"data-label="Id">"#), numbers(page, r#"<span class="only-stacked">Order </span>"#)].concat()
}

/// Follows the links of a list to its end and back. `shown` tells what a page shows.
async fn assert_leads_back_and_forth(
    user: &mut ConsoleUser,
    list: &str,
    shown: impl Fn(&str) -> Vec<i64>,
    pages: &[Vec<i64>],
) {
    let (mut path, mut seen) = (Some(list.to_owned()), Vec::new());
    while let Some(next) = path {
        let page = user.get(&next).await.body;
        assert_eq!(shown(&page), pages[seen.len()], "{next}");
        assert_eq!(link(&page, "First page").as_deref(), (!seen.is_empty()).then_some(list), "{next}");
        path = link(&page, "Next page");
        seen.push(page);
    }
    assert_eq!(seen.len(), pages.len(), "{list}");
    assert_eq!(link(&seen[0], "Previous page"), None);
    for number in (0..pages.len() - 1).rev() {
        let path = link(&seen[number + 1], "Previous page").unwrap();
        let page = user.get(&path).await.body;
        assert_eq!((shown(&page), link(&page, "First page").is_some()), (pages[number].clone(), number > 0), "{path}");
    }
}

#[test]
fn lists_lead_from_the_newest_entry_to_the_oldest_and_back() {
    Service::with_pets_on_every_database(50, async |service| {
        let mut ada = ConsoleUser::signed_in(service, ADA).await;
        let mut grace = ConsoleUser::signed_in(service, "grace@example.com").await;
        for animal in 1..=45 {
            assert_eq!(ada.post("/orders", &[("petId", &animal.to_string())]).await.status(), 201);
        }
        for order in 46..=48 {
            assert_eq!(ada.post("/orders", &[("petId", &order.to_string())]).await.status(), 201);
            assert_eq!(ada.post(&format!("/orders/{order}/cancel"), &[]).await.status(), 200);
        }
        for animal in 46..=50 {
            assert_eq!(grace.post("/orders", &[("petId", &animal.to_string())]).await.status(), 201);
        }
        service.create_pets(1).await;
        assert_eq!(ids(&ada.get("/orders?status=cancelled").await.body), [48, 47, 46]);
        for (list, count) in
            [("/animals", 51), ("/animals?status=pending", 50), ("/orders", 48), ("/orders?status=placed", 45)]
        {
            let pages = [(count - 19..=count), (count - 39..=count - 20), (1..=count - 40)];
            assert_leads_back_and_forth(&mut ada, list, ids, &pages.map(|ids| ids.rev().collect())).await;
        }
        // Newer entries than fit on a page before it are shown with older ones.
        assert_eq!(ids(&ada.get("/animals?after=49").await.body), (32..=51).rev().collect::<Vec<_>>());
    });
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

#[test]
fn orders_are_searched_by_customer_status_and_animal() {
    Service::with_pets_on_every_database(26, async |service| {
        let mut ada = staff(service, ADA).await;
        let mut grace = ConsoleUser::signed_in(service, "grace@example.com").await;
        for animal in 1..=25 {
            grace.post("/orders", &[("petId", &animal.to_string())]).await;
        }
        ada.post("/orders", &[("petId", "26")]).await;
        ada.post("/orders/3/cancel", &[]).await;
        ada.post("/orders", &[("petId", "3")]).await;

        for (path, expected) in [
            ("/orders?animal=3", vec![27, 3]),
            ("/orders?animal=+3+&status=cancelled", vec![3]),
            ("/orders?animal=3&customer=GRACE@example.com", vec![3]),
            ("/orders?animal=3&customer=grace@example.com&status=placed", vec![]),
            ("/orders?customer=ada%40lovelace.example", vec![27, 26]),
            ("/orders?customer=nobody@example.com", vec![]),
            ("/orders?customer=&animal=&from=2", vec![2, 1]),
        ] {
            assert_eq!(ids(&ada.get(path).await.body), expected, "{path}");
        }
        let list = "/orders?customer=grace%40example.com&status=placed";
        let pages = [(5..=25).filter(|id| *id != 5).rev().collect::<Vec<_>>(), vec![5, 4, 2, 1]];
        assert_leads_back_and_forth(&mut ada, list, ids, &pages).await;
        let page = ada.get(list).await.body;
        assert!(page.contains("orders?status=approved&amp;customer=grace%40example.com\""), "{page}");
        assert!(page.contains("limit=20&#38;status=placed&#38;after=5&#38;accountId="), "{page}");

        // A customer learns nothing of others, and starts no search of all orders.
        assert_eq!(ids(&grace.get("/orders?customer=ada@lovelace.example&animal=3").await.body).len(), 20);
        for path in ["/orders?animal=x", "/orders?customer=x"] {
            assert_eq!(ada.get(path).await.status(), 400, "{path}");
        }
    });
}

#[test]
fn messages_begin_at_an_id_and_lead_back() {
    Service::on_every_database(async |service| {
        let mut ada = ConsoleUser::signed_in(service, ADA).await;
        let mut grace = ConsoleUser::signed_in(service, "grace@example.com").await;
        for number in 0..25 {
            service.clock.set(NOW.plus(Duration::from_secs(number)));
            for (person, name) in [(&mut ada, "number"), (&mut grace, "other")] {
                person.post("/messages", &[("message", &format!("{name} {number:02}"))]).await;
            }
        }
        let shown = |page: &str| {
            assert!(!page.contains(">other "), "messages of another account: {page}");
            numbers(page, r#"<p class="message">number "#)
        };
        let pages = [(15..25), (5..15), (0..5)].map(|numbers| numbers.rev().collect());
        assert_leads_back_and_forth(&mut ada, "/messages", shown, &pages).await;

        let first = ada.get("/messages").await.body;
        let second = ada.get(&link(&first, "Next page").unwrap()).await.body;
        let id = format!("msg_{}", between(&second, "<code>msg_", "</code>"));
        assert_eq!(shown(&ada.get(&format!("/messages?from={id}")).await.body), pages[1]);
    });
}

#[test]
fn keys_and_the_audit_lead_from_the_newest_to_the_oldest_and_back() {
    Service::on_every_database(async |service| {
        let mut ada = staff(service, ADA).await;
        let mut grace = ConsoleUser::signed_in(service, "grace@example.com").await;
        for number in 0..45 {
            ada.key(&format!("key {number:02}")).await;
            grace.key(&format!("key {}", 100 + number)).await;
        }
        let shown = |page: &str| numbers(page, r#"<th scope="row">key "#);
        let pages = [(25..45), (5..25), (0..5)].map(|numbers| numbers.rev().collect());
        assert_leads_back_and_forth(&mut ada, "/keys?status=active", shown, &pages).await;

        let names =
            |page: &str| page.split("</bdi>").filter_map(|part| part.rsplit_once(": key ")?.1.parse().ok()).collect();
        let all: Vec<_> = (0..45).flat_map(|number| [number, 100 + number]).rev().collect();
        let pages: Vec<_> = all.chunks(20).map(<[_]>::to_vec).collect();
        assert_leads_back_and_forth(&mut ada, "/audit", names, &pages).await;
    });
}

#[test]
fn keys_are_filtered_by_state_and_show_their_requests() {
    Service::on_every_database(async |service| {
        let mut ada = ConsoleUser::signed_in(service, ADA).await;
        let mut grace = ConsoleUser::signed_in(service, "grace@example.com").await;
        let busy = ada.key("busy").await;
        let idle = ada.key("idle").await;
        grace.key("other").await;
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
        assert!(grace.get("/keys?status=revoked").await.body.contains("You have no revoked keys."));

        let (short, idle, busy) = (("short", "0"), ("idle", "1"), ("busy", "4"));
        let expiry = NOW.plus(Duration::from_hours(30 * 24));
        for (now, active, expired) in
            [(expiry.minus(Duration::from_millis(1)), vec![short, idle], vec![]), (expiry, vec![idle], vec![short])]
        {
            service.clock.set(now);
            ada.sign_in(ADA, testkit::console::PASSWORD).await;
            for (path, expected) in [
                ("/keys", vec![short, idle, busy]),
                ("/keys?status=active", active),
                ("/keys?status=expired", expired),
                ("/keys?status=revoked", vec![busy]),
            ] {
                let page = ada.get(path).await.body;
                let rows = page.split(r#"<th scope="row">"#).skip(1);
                let shown: Vec<_> = rows
                    .map(|row| (row.split([' ', '<']).next().unwrap(), between(row, r#"data-label="Requests">"#, "<")))
                    .collect();
                assert_eq!(shown, expected, "{path} at {now}");
            }
        }
        assert_eq!(ada.get("/keys?status=works").await.status(), 400);
    });
}
