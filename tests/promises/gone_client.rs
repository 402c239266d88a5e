//! Promise 8: a client that goes away harms nothing.

use std::time::Duration;

use testkit::{Random, trial, within};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::shop::{Operation, Shop};

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
    assert_eq!(service.create_pet(&shop.key, "before").status, 201);
    let sockets = service.sockets();
    let (mut carried_out, mut whole) = (0, 0);
    for n in 0..resets {
        let operation = Operation::ALL[n as usize % Operation::ALL.len()];
        let text = operation.text(&service, &shop.key, &format!("text-{n}"));
        let request = request(operation, &shop.key, &format!("Idempotency-Key: key-{n}\r\n"), &text);
        // A third of them whole: what matters most happens there.
        let sent = (random.below(request.len() as u64 * 3 / 2) as usize + 1).min(request.len());
        let patience = Duration::from_micros(random.below(3_000));
        reset_after(operation.door(&service), &request.as_bytes()[..sent], patience).await;
        whole += u32::from(sent == request.len());

        let answer = operation.ask_until_settled(&service, &shop.key, &format!("key-{n}"), &text);
        assert_eq!(answer.status, operation.status(), "{n}, after {sent} bytes: {answer:?}");
        let again = operation.ask(&service, &shop.key, &format!("key-{n}"), &text);
        assert_eq!((again.body(), again.is_replayed()), (answer.body(), true), "{n}");
        carried_out += u32::from(answer.is_replayed());
        if (n + 1) % 500 == 0 {
            println!("{} of {resets} resets", n + 1);
        }
    }
    // No connection is left.
    within(Duration::from_secs(10), "closing what clients have left", || service.sockets() <= sockets);
    let effects = shop.effects();
    assert_eq!(effects.len(), resets as usize + 1);
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    assert!(carried_out > 0 && carried_out < resets, "{carried_out} of {resets} had their effect: too uniform a test");
    trial::measured(&format!(
        "{resets} resets, {whole} of them after the last byte, {carried_out} of them after the effect: one effect each, no connection left"
    ));

    // The control: without the key, what is sent again is done again.
    for n in 0..5 {
        let name = format!("control-{n}");
        let request = request(Operation::CreatePet, &shop.key, "", &name);
        reset_after(&service.store, request.as_bytes(), Duration::from_millis(300)).await;
        assert_eq!(service.create_pet(&shop.key, &name).status, 201);
        assert_eq!(shop.effects()[&name], 2);
    }
}

fn request(operation: Operation, key: &str, header: &str, text: &str) -> String {
    let (path, body) = operation.request(text);
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         {header}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Resets the connection, so that the service learns of it at once and in the middle of whatever it does.
async fn reset_after(address: &str, bytes: &[u8], patience: Duration) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(bytes).await.unwrap();
    tokio::time::sleep(patience).await;
    stream.set_zero_linger().unwrap();
}
