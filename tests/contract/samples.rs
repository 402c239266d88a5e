//! The code that the console shows for an API call.

use testkit::ConsoleUser;
use testkit::console::code;

use crate::process::{go, run, shell, shown};
use crate::service::Service;

#[tokio::test]
async fn code_samples_of_the_console_send_the_request() {
    let service = Service::start().await;
    let mut eve = ConsoleUser::signed_in(service.store_address, "eve@example.com").await;
    let fields = [("name", "O'Malley ♥ \"Rex\""), ("categoryId", "3"), ("status", "available")];
    let page = eve.post("/animals/new", &fields).await.body;
    let samples = ["curl", "typescript", "python", "go"].map(|id| (id, code(&page, &format!("request-{id}"))));

    let key = service.key.clone();
    let printed =
        tokio::task::spawn_blocking(move || samples.map(|(id, code)| (id, printed(id, &code, &key)))).await.unwrap();

    // The account of the key has not used the `Idempotency-Key`. The first sample adds an animal, the others get its response.
    for (id, printed) in printed {
        assert!(printed.contains("201"), "{id}: {printed}");
        assert!(
            printed.contains(r#"{"id":2,"name":"O'Malley ♥ \"Rex\"","categoryId":3,"status":"available"}"#),
            "{id}: {printed}"
        );
    }
    assert_eq!(service.store.count_pets().await.unwrap(), 2);
}

/// Runs a sample and returns its output.
fn printed(id: &str, code: &str, key: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (file, command) = match id {
        "curl" => ("sample.sh", "sh sample.sh".to_owned()),
        "typescript" => ("sample.mts", "node sample.mts".to_owned()),
        "python" => ("sample.py", "python sample.py".to_owned()),
        _ => ("sample.go", go("run sample.go")),
    };
    std::fs::write(folder.path().join(file), code).unwrap();
    let output = run(shell(&command).env("KEY", key), folder.path());
    assert!(output.status.success(), "{id}: {}", shown(&output));
    String::from_utf8(output.stdout).unwrap()
}
