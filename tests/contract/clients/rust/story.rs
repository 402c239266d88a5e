//! The story with the Rust client of openapi-generator.

use petstore_client::apis::configuration::Configuration;
use petstore_client::apis::messages_api::send_message;
use petstore_client::apis::pets_api::{create_pet, get_pet, list_pets};
use petstore_client::apis::store_api::{approve_order, deliver_order, place_order};
use petstore_client::apis::{Error, ResponseContent};
use petstore_client::models::{MessageInput, NewPet, OrderInput, PetStatus};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (store, messages) = (configuration("STORE_URL"), configuration("MESSAGES_URL"));

    let pets = list_pets(&store, None, None, None, None).await.unwrap();
    println!("list 200 {}", pets.len());

    let tom = || NewPet { status: Some(PetStatus::Sold), ..NewPet::new("Tom".to_owned(), 3) };
    let rex = || NewPet::new("Rex".to_owned(), 3);
    let sold = create_pet(&store, tom(), None, None).await.unwrap();
    println!("create with status 201 {}", sold.status);
    let key = uuid::Uuid::new_v4().to_string();
    let pet = create_pet(&store, rex(), Some(&key), None).await.unwrap();
    println!("create 201 {}", pet.status);
    let again = create_pet(&store, rex(), Some(&key), None).await.unwrap();
    println!("replay 201 {}", again.id == pet.id);
    println!("reused key {}", rejection(create_pet(&store, tom(), Some(&key), None).await));

    let got = get_pet(&store, pet.id, None).await.unwrap();
    println!("get 200 {}", got.name);
    println!("get unknown {}", rejection(get_pet(&store, 404_404, None).await));
    let wrong = Configuration { bearer_access_token: Some("pet_test_x".to_owned()), ..configuration("STORE_URL") };
    println!("wrong key {}", rejection(list_pets(&wrong, None, None, None, None).await));

    let order = place_order(&store, OrderInput::new(pet.id), None, None).await.unwrap();
    println!("order 201 {}", order.status);
    println!("order again {}", rejection(place_order(&store, OrderInput::new(pet.id), None, None).await));
    let approved = approve_order(&store, order.id, None, None).await.unwrap();
    println!("approve 200 {}", approved.status);
    let delivered = deliver_order(&store, order.id, None, None).await.unwrap();
    println!("deliver 200 {}", delivered.status);

    let message = send_message(&messages, MessageInput::new("Hello".to_owned()), None, None).await.unwrap();
    println!("message 202 {}", message.status);
}

fn configuration(url: &str) -> Configuration {
    let variable = |name| std::env::var(name).unwrap();
    Configuration {
        base_path: variable(url),
        bearer_access_token: Some(variable("STORE_API_KEY")),
        ..Configuration::new()
    }
}

/// The status and code of an error response.
fn rejection<T: std::fmt::Debug, E>(result: Result<T, Error<E>>) -> String {
    let Err(Error::ResponseError(ResponseContent { status, content, .. })) = result else {
        panic!("{:?}", result.map_err(|error| error.to_string()));
    };
    let (_, code) = content.split_once(r#""code":""#).unwrap();
    format!("{} {}", status.as_u16(), code.split('"').next().unwrap())
}
