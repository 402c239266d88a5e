//! The audit of requests of the API: steps of orders by another than their customer.

use petstore::api::Network;
use petstore::domain::AuditEntry;
use testkit::Request;

use crate::service::{NOW, Service, Setup};

fn shown(rows: &[AuditEntry]) -> Vec<String> {
    let row = |row: &AuditEntry| {
        let (client, id) = (row.client_address.as_deref().unwrap(), row.request_id.as_deref().unwrap());
        format!("{} {} {} {client} {id}", row.action, row.actor, row.subject)
    };
    rows.iter().map(row).collect()
}

fn step(service: &Service, key: &str, order: i64, step: &str) -> Request {
    service.step(key, order, step).header("x-request-id", &format!("{step}-{order}"))
}

async fn statuses<const N: usize>(requests: [Request; N]) -> [u16; N] {
    let mut statuses = [0; N];
    for (status, request) in statuses.iter_mut().zip(requests) {
        *status = request.send().await.status();
    }
    statuses
}

#[test]
fn step_of_an_order_by_another_than_its_customer_is_audited_once() {
    Service::with_pets_on_every_database(4, async |service| {
        let (_, carol) = service.another_account("carol@example.com").await;
        for (pet, key) in [(1, &carol), (2, &carol), (3, &carol), (4, &service.key)] {
            assert_eq!(service.order(key, pet).send().await.status(), 201);
        }

        // Own steps, and steps that are forbidden, not possible, unknown and simulated.
        let unaudited = [
            step(service, &carol, 1, "cancel"),
            step(service, &service.key, 4, "approve"),
            step(service, &carol, 2, "approve"),
            step(service, &service.key, 2, "deliver"),
            step(service, &service.key, 9, "approve"),
            step(service, &service.key, 2, "approve").header("prefer", "code=503"),
        ];
        assert_eq!(statuses(unaudited).await, [200, 200, 403, 409, 404, 503]);
        assert_eq!(shown(&service.audit().await), [""; 0]);

        let keyed = |order| step(service, &service.key, order, "approve").header("idempotency-key", "once");
        let audited = [
            step(service, &service.key, 2, "approve"),
            keyed(3),
            keyed(3),
            step(service, &service.key, 2, "deliver"),
            step(service, &service.key, 3, "cancel"),
        ];
        assert_eq!(statuses(audited).await, [200; 5]);
        let rows = service.audit().await;
        let expected = [
            "order.approve ada@example.com order 2 of carol@example.com 127.0.0.1 approve-2",
            "order.approve ada@example.com order 3 of carol@example.com 127.0.0.1 approve-3",
            "order.deliver ada@example.com order 2 of carol@example.com 127.0.0.1 deliver-2",
            "order.cancel ada@example.com order 3 of carol@example.com 127.0.0.1 cancel-3",
        ];
        assert_eq!(shown(&rows), expected);
        assert!(rows.iter().all(|row| row.at == NOW));
    });
}

#[tokio::test]
async fn row_names_the_client_behind_a_proxy_and_the_id_of_the_response() {
    let trusted_proxies = vec![Network::parse("127.0.0.1").unwrap()];
    let service = Service::start_with(Setup { trusted_proxies, ..Setup::default() }).await;
    service.create_pets(2).await;
    let (_, carol) = service.another_account("carol@example.com").await;
    let placed = [service.order(&carol, 1), service.order(&carol, 2)];
    assert_eq!(statuses(placed).await, [201; 2]);

    let approve = service.request("POST", "/v1/store/orders/1/approve").key(&service.key);
    let answer = approve.header("x-forwarded-for", "203.0.113.9, 192.0.2.60").send().await;
    // The id could be anything.
    let approve = service.request("POST", "/v1/store/orders/2/approve").key(&service.key);
    assert_eq!(approve.header("x-request-id", &service.key).send().await.status(), 200);

    let rows = service.audit().await;
    assert_eq!(rows[0].client_address.as_deref(), Some("192.0.2.60"));
    assert_eq!(rows[0].request_id.as_deref(), answer.header("x-request-id"));
    let hidden = rows[1].request_id.as_deref().unwrap();
    assert!(!hidden.contains(&service.key[9..]), "{hidden}");
}
