use std::time::Duration;

use petstore_client::apis::Error;
use petstore_client::apis::configuration::Configuration;
use petstore_client::apis::pets_api::{create_pet, list_pets};
use petstore_client::models::NewPet;

async fn retry<T, E>(call: impl AsyncFn() -> Result<T, Error<E>>) -> T {
    let mut wait = 1;
    loop {
        let error = match call().await {
            Ok(value) => return value,
            Err(error) => error,
        };
        let status = if let Error::ResponseError(response) = &error { response.status.as_u16() } else { 503 };
        assert!(wait <= 8 && (status == 429 || status >= 500), "{error}");
        tokio::time::sleep(Duration::from_secs(wait)).await;
        wait *= 2;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let store = Configuration {
        base_path: variable("STORE_URL"),
        bearer_access_token: Some(variable("STORE_API_KEY")),
        ..Configuration::new()
    };

    // The key is the same for every attempt, so the animal is added once.
    let key = uuid::Uuid::new_v4().to_string();
    let added = retry(async || create_pet(&store, NewPet::new("Rex".to_owned(), 3), Some(&key), None).await).await;
    println!("added {}", added.name);

    let mut after = None;
    loop {
        let pets = retry(async || list_pets(&store, None, None, after, None).await).await;
        for pet in &pets {
            println!("{} {}", pet.id, pet.name);
        }
        let Some(last) = pets.last() else { break };
        after = Some(last.id);
    }
}
