//! Promise 8: a client that disconnects at any moment does no harm.

use std::time::Duration;

use testkit::{Random, Server, Shop, trial, until, within};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::keyed::{Operation, assert_effects_are_single, effects};

#[tokio::test]
async fn retried_request_executes_once_after_any_cut() {
    cut_off(&Shop::on_sqlite()).await;
}

#[tokio::test]
async fn retried_request_executes_once_on_postgresql() {
    cut_off(&Shop::on_postgresql()).await;
}

/// Sends a part of a request, or all of it, resets the connection, and sends the request again with the same key.
async fn cut_off(shop: &Shop) {
    let (resets, mut random) = (trial::rounds(100), Random::from_seed());
    let service = shop.database.serve();
    assert_eq!(service.create_pet(&shop.key, "before").status(), 201);
    let sockets = service.sockets();
    let (mut executed, mut whole) = (0, 0);
    // Maximum delay: twice the time of the last response, so that a reset comes before or after the effect.
    let mut most = Duration::from_millis(3);
    for n in trial::counted(resets) {
        let operation = Operation::of(n as usize);
        let (key, text) = (format!("key-{n}"), operation.text(&service, &shop.key, &format!("text-{n}")));
        let request = operation.request(&service, &shop.key, &text).header("idempotency-key", &key).bytes();
        // A third of the requests are sent whole, because only they reach the store.
        let sent = (random.index(request.len() * 3 / 2) + 1).min(request.len());
        let delay = Duration::from_micros(random.below(most.as_micros() as u64));
        send_and_reset(operation, &service, &request[..sent], async { sleep(delay).await }).await;
        whole += u32::from(sent == request.len());

        let response = operation.send_until_settled(&service, &shop.key, &key, &text);
        assert_eq!(response.status(), operation.status(), "{n}, after {sent} bytes: {response:?}");
        most = (2 * response.took).clamp(Duration::from_millis(3), Duration::from_secs(1));
        let again = operation.send(&service, &shop.key, &key, &text);
        assert_eq!((&again.body, again.is_replayed()), (&response.body, true), "{n}");
        executed += u32::from(response.is_replayed());
    }
    within(Duration::from_secs(10), "closing abandoned connections", || service.sockets() <= sockets);
    assert_effects_are_single(&shop.database, resets as usize + 1);
    assert!(executed > 0 && executed < resets, "{executed} of {resets} were executed: little was tested");
    trial::measured(&format!(
        "{resets} resets, {whole} of them after the last byte, {executed} of them after the effect: one effect each, no connection left"
    ));

    // Control: without a key, a request that is sent again is executed again.
    for n in 0..5 {
        let name = format!("control-{n}");
        let request = service.pet_request(&shop.key, &name);
        let is_created = until(async || effects(&shop.database).contains_key(&name));
        send_and_reset(Operation::CreatePet, &service, &request.bytes(), is_created).await;
        assert_eq!(request.send_blocking().status(), 201);
        assert_eq!(effects(&shop.database)[&name], 2);
    }
}

/// Resets the connection after `delayed`. Unlike a close, the service learns of a reset at once.
async fn send_and_reset(operation: Operation, service: &Server, bytes: &[u8], delayed: impl Future<Output = ()>) {
    let mut stream = TcpStream::connect(operation.address(service)).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(bytes).await.unwrap();
    delayed.await;
    stream.set_zero_linger().unwrap();
}
