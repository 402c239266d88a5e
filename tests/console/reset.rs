//! Resetting a staging store in the console.

use petstore::domain::Deployment;
use testkit::ConsoleUser;
use testkit::postgres::query;

use crate::service::{Service, Setup};
use crate::users::{ADA, make_staff, staff};

#[test]
fn staff_reset_the_store_and_stay_signed_in() {
    Service::on_every_database(async |service| {
        let mut ada = staff(service, ADA).await;
        let key = ada.key("laptop").await;
        service.create_pets(3).await;
        assert_eq!(ada.post("/orders", &[("petId", "2")]).await.status(), 201);
        assert!(ada.get("/").await.body.contains("reset\">Reset this store"));
        let page = ada.get("/reset").await;
        assert!(page.body.contains("All 3 animals, 1 orders and 0 messages are deleted"), "{}", page.body);

        let done = ada.post("/reset", &[]).await;

        assert_eq!((done.status(), done.header("location")), (303, Some("./?notice=store-reset")));
        assert!(ada.get("/?notice=store-reset").await.body.contains("The store was reset."));
        let first = service.request("GET", "/v1/pets?limit=1").key(&key).send().await;
        assert_eq!(first.body, r#"[{"id":1,"name":"Rex","categoryId":1,"status":"available"}]"#);
        assert_eq!(service.request("GET", "/v1/store/orders").key(&key).send().await.body, "[]");
        assert_eq!(service.store.count_pets().await.unwrap(), 30);
    });
}

#[tokio::test]
async fn customers_and_production_cannot_reset() {
    for (deployment, is_staff) in [(Deployment::Staging, false), (Deployment::Production, true)] {
        let service = Service::start_with(Setup { deployment, ..Setup::default() }).await;
        let mut ada = ConsoleUser::signed_in(&service, ADA).await;
        if is_staff {
            make_staff(&service, ADA).await;
        }
        service.create_pets(2).await;
        assert!(!ada.get("/").await.body.contains("Reset this store"));
        assert_eq!([ada.get("/reset").await.status(), ada.post("/reset", &[]).await.status()], [403, 403]);
        assert_eq!(service.store.count_pets().await.unwrap(), 2);
    }
}

#[tokio::test]
async fn service_whose_role_does_not_own_the_tables_cannot_reset() {
    let url = testkit::postgres::database();
    query(&url, "CREATE ROLE tenant LOGIN; GRANT CREATE, USAGE ON SCHEMA public TO tenant");
    let tenants = url.replace("petstore@", "tenant@");
    let service = Service::start_with(Setup { postgres: Some(tenants), ..Setup::default() }).await;
    let mut ada = staff(&service, ADA).await;
    service.create_pets(2).await;
    query(&url, "ALTER TABLE pets OWNER TO petstore; GRANT ALL ON pets TO tenant");

    for refused in [ada.get("/reset").await, ada.post("/reset", &[]).await] {
        assert_eq!(refused.status(), 403, "{}", refused.body);
        assert!(refused.body.contains("with the role that owns its tables."), "{}", refused.body);
    }
    assert_eq!(service.store.count_pets().await.unwrap(), 2);
}
