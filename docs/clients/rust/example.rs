use std::time::Duration;

use petstore_client::apis::Error;
use petstore_client::apis::configuration::Configuration;
use petstore_client::apis::messages_api::send_message;
use petstore_client::apis::pets_api::{create_pet, list_pets};
use petstore_client::apis::store_api::place_order;
use petstore_client::models::{MessageInput, NewPet, OrderInput};
use tokio::time::{sleep, timeout};

/// Returns a success. `None` for a conflict that does not pass.
async fn retry<T, E>(call: impl AsyncFn() -> Result<T, Error<E>>) -> Option<T> {
    let mut wait = 1;
    loop {
        // For the whole response, with its body.
        let (status, error) = match timeout(Duration::from_secs(10), call()).await {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(Error::ResponseError(response))) => (response.status.as_u16(), response.content),
            // A lost connection, or a body that is not JSON.
            Ok(Err(error)) => (500, error.to_string()),
            Err(elapsed) => (500, elapsed.to_string()),
        };
        match status {
            // The first attempt may still be in progress. Only `Retry-After` would tell.
            409 if wait > 8 => return None,
            401 => fail("STORE_API_KEY is not valid: create another key"),
            _ if wait > 8 || (status < 500 && status != 409 && status != 429) => fail(&format!("request failed: {error}")),
            _ => sleep(Duration::from_secs(wait)).await,
        }
        wait *= 2;
    }
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(1)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| fail(&format!("{name} is not set")));
    let at = |url| Configuration {
        base_path: variable(url),
        bearer_access_token: Some(variable("STORE_API_KEY")),
        ..Configuration::new()
    };
    let (store, messages) = (at("STORE_URL"), at("MESSAGES_URL"));

    // The key is the same for every attempt, so the animal is added once.
    let key = || uuid::Uuid::new_v4().to_string();
    let (add, order, send) = (key(), key(), key());
    let rex = || NewPet::new("Rex".to_owned(), 3);
    let added = retry(async || create_pet(&store, rex(), Some(&add), None).await).await;
    let added = added.unwrap_or_else(|| fail("the key is in use"));
    println!("added {}", added.name);

    let input = || OrderInput::new(added.id);
    let ordered = retry(async || place_order(&store, input(), Some(&order), None).await).await;
    println!("{}", if ordered.is_some() { "ordered Rex" } else { "Rex is gone" });

    let hello = || MessageInput::new("Hello".to_owned());
    let message = retry(async || send_message(&messages, hello(), Some(&send), None).await).await;
    println!("message {}", message.unwrap_or_else(|| fail("the key is in use")).status);

    let mut after = None;
    while let Some(pets) = retry(async || list_pets(&store, None, None, after, None).await).await {
        for pet in &pets {
            println!("{} {}", pet.id, pet.name);
        }
        let Some(last) = pets.last() else { break };
        after = Some(last.id);
    }
}
