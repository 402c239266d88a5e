//! `listPets`, `createPet`, `getPet`.

use expect_test::expect;

use crate::support::Service;

#[tokio::test]
async fn an_animal_that_was_added_is_listed_and_found() {
    let service = Service::start().await;

    let created = service.post("/v1/pets", r#"{"name":"Rex","categoryId":3}"#).await;
    expect![[r#"
        201 Created
        content-type: application/json
        location: http://HOST/v1/pets/1

        {"id":1,"name":"Rex","categoryId":3,"status":"available"}
    "#]]
    .assert_eq(&created.shown());

    expect![[r#"
        200 OK
        content-type: application/json

        [{"id":1,"name":"Rex","categoryId":3,"status":"available"}]
    "#]]
    .assert_eq(&service.get("/v1/pets").await.shown());

    expect![[r#"
        200 OK
        content-type: application/json
        deprecation: @1795132800
        sunset: Thu, 05 Dec 2030 00:00:00 GMT
        link: <http://HOST/docs/deprecations>; rel="deprecation", <http://HOST/v1/pets>; rel="successor-version"

        {"id":1,"name":"Rex","categoryId":3,"status":"available"}
    "#]]
    .assert_eq(&service.get("/v1/pets/1").await.shown());
}
