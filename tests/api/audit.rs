//! The audit of requests of the API. `tests/store/audit.rs` tells which changes leave a row.

use petstore::api::Network;

use crate::service::{NOW, Service, Setup};

#[tokio::test]
async fn row_of_a_step_names_its_client_and_the_id_of_its_response() {
    for postgres in [None, Some(testkit::postgres::database())] {
        let trusted_proxies = vec![Network::parse("127.0.0.1").unwrap()];
        let service = Service::start_with(Setup { trusted_proxies, postgres, ..Setup::default() }).await;
        service.create_pets(3).await;
        let (_, carol) = service.another_account("carol@example.com").await;
        for (pet, key) in [(1, &carol), (2, &carol), (3, &service.key)] {
            assert_eq!(service.order(key, pet).send().await.status(), 201);
        }
        let step = |key: &str, order, step: &str| {
            service.step(key, order, step).header("x-forwarded-for", "203.0.113.9, 192.0.2.60")
        };

        let cancelled = step(&carol, 2, "cancel").send().await;
        // Rejected and simulated steps leave no row, nor does an own approval. A replayed step leaves no second.
        for (status, request) in [
            (403, step(&carol, 1, "approve")),
            (409, step(&service.key, 1, "deliver")),
            (503, step(&service.key, 1, "approve").header("prefer", "code=503")),
            (200, step(&service.key, 3, "approve")),
            (200, step(&service.key, 1, "approve").header("idempotency-key", "once").header("x-request-id", "mine")),
            (200, step(&service.key, 1, "approve").header("idempotency-key", "once")),
        ] {
            assert_eq!(request.send().await.status(), status);
        }
        let delivered = step(&service.key, 1, "deliver").send().await;
        assert_eq!(service.order(&carol, 2).send().await.id(), 4);
        // The id could be anything.
        step(&service.key, 4, "cancel").header("x-request-id", &service.key).send().await;

        let rows = service.audit().await;
        let shown = rows.iter().map(|row| format!("{} {} {}", row.action, row.actor, row.subject));
        let expected = [
            "order.cancel carol@example.com order 2 of carol@example.com",
            "order.approve ada@example.com order 1 of carol@example.com",
            "order.deliver ada@example.com order 1 of carol@example.com",
            "order.cancel ada@example.com order 4 of carol@example.com",
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        assert!(rows.iter().all(|row| (row.at, row.client_address.as_deref()) == (NOW, Some("192.0.2.60"))));
        let ids = [
            cancelled.header("x-request-id"),
            Some("mine"),
            delivered.header("x-request-id"),
            Some("pet_test_[hidden]"),
        ];
        assert_eq!(rows.iter().map(|row| row.request_id.as_deref()).collect::<Vec<_>>(), ids);
    }
}
