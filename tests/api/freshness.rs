//! Cached pages: a list includes every commit that was acknowledged before the request, by any process.

use petstore::domain::{NewPet, PetName};

use crate::service::{HELLO, Service};

#[tokio::test]
async fn full_page_stays_cached_while_other_rows_are_added() {
    let service = Service::with_pets(3).await;
    let (full, last) = ("/v1/pets?limit=2", "/v1/pets?limit=2&after=2");
    let order = service.post("/v1/store/orders", r#"{"petId":3}"#).await;
    let paths = [full, last, "/v1/store/orders"];
    for path in paths {
        // The second request of each page is answered from the cache.
        service.get(path).await;
        assert_eq!(reads(&service, path).await, 0, "{path}");
    }

    service.create_pets(1).await;
    assert_eq!(service.message(HELLO).await.status(), 202);
    service.another_key(None).await;
    assert_eq!(reads(&service, full).await, 0);
    assert_eq!(reads(&service, last).await, 1, "an added animal is on it");
    assert_eq!(reads(&service, "/v1/store/orders").await, 0);

    let cancel = format!("/v1/store/orders/{}/cancel", order.id());
    assert_eq!(service.post(&cancel, "{}").await.status(), 200);
    for path in paths {
        assert_eq!(reads(&service, path).await, 1, "{path}: the status of an animal has changed");
    }
}

#[tokio::test]
async fn imported_animals_are_on_a_page_cached_before() {
    let service = Service::with_pets(1).await;
    for path in ["/v1/pets", "/v1/pets?status=available"] {
        let before = service.ids(path).await.len();
        assert_eq!(reads(&service, path).await, 0, "{path} is cached");
        let animal = NewPet::new(PetName::parse("Mimi".into()).unwrap(), 1);
        service.store.import_pets(Box::new([Ok(animal)].into_iter())).await.unwrap();
        assert_eq!(service.ids(path).await.len(), before + 1, "{path}");
    }
}

/// Requests a page, and returns how many pages were read from the database.
async fn reads(service: &Service, path: &str) -> u64 {
    let before = service.api.pages.misses.get();
    assert_eq!(service.get(path).await.status(), 200);
    service.api.pages.misses.get() - before
}

#[tokio::test]
async fn pages_show_changes_by_this_and_other_processes() {
    let service = Service::with_pets(3).await;
    let (other, path) = (service.connection(), "/v1/pets?limit=1&status=available");
    let mut count = 3;
    for turn in 0..20 {
        assert_eq!(service.ids(path).await, [1]);
        service.create_pets(turn % 3).await;
        other.execute("INSERT INTO pets (name, category_id, status) VALUES ('Mimi', 1, 0)", []).unwrap();
        count += turn % 3 + 1;
        assert_eq!(service.ids("/v1/pets?limit=100").await.len(), count, "a page that grows");
        assert_eq!(service.ids(path).await, [1]);
        let is_ordered = turn % 2 == 0;
        let order = if is_ordered { service.order(&service.key, 1).send().await.id() } else { 0 };
        if !is_ordered {
            other.execute("UPDATE pets SET status = 2 WHERE id = 1", []).unwrap();
        }
        // This process's next commit follows the other's.
        service.create_pets(turn % 4).await;
        count += turn % 4;
        assert_eq!(service.ids(path).await, [2]);
        if is_ordered {
            assert_eq!(service.step(&service.key, order, "cancel").send().await.status(), 200);
        } else {
            other.execute("UPDATE pets SET status = 0 WHERE id = 1", []).unwrap();
        }
    }
}
