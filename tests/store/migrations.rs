//! The first start, and migrations.

use petstore::domain::{Deployment, NewAccount};
use petstore::store::postgres::Postgres;
use petstore::store::sqlite::{self, Sqlite};
use sha2::{Digest, Sha256};
use testkit::postgres::{self, query};

use crate::fixtures::{OPERATOR, email, open_postgresql, open_sqlite, open_with, options};

/// Otherwise, the next command could choose the deployment of a database whose first start was killed.
#[tokio::test]
async fn schema_and_deployment_are_created_in_one_transaction() {
    let url = postgres::database();
    open_postgresql(&url).await.close().await;
    let transactions = "SELECT count(DISTINCT xmin::text)
        FROM (SELECT xmin FROM schema_history WHERE version = 1
              UNION ALL SELECT xmin FROM meta WHERE key = 'deployment') AS created";
    assert_eq!(query(&url, transactions), "1");

    // Without its deployment, nothing chooses another one.
    query(&url, "DELETE FROM meta WHERE key = 'deployment'");
    let (options, why) = (options(&url), "the database was never completed");
    assert_eq!(Postgres::open(&options).await.unwrap_err().to_string(), why);
    assert_eq!(Postgres::stored_deployment(&options.cluster.url).await.unwrap_err().to_string(), why);
}

#[tokio::test]
async fn command_does_not_complete_a_killed_first_start() {
    let folder = tempfile::tempdir().unwrap();
    // The first start was killed before it created tables.
    let file = rusqlite::Connection::open(folder.path().join("petstore.db")).unwrap();
    file.pragma_update(None, "journal_mode", "WAL").unwrap();
    drop(file);
    let command = sqlite::Options { create: None, ..sqlite::Options::new(folder.path()) };
    let quickstart = sqlite::Options { create: Some(Deployment::Staging), ..command.clone() };

    let refused = Sqlite::open(&command).unwrap_err().to_string();

    assert!(refused.contains("let `petstore serve` or `petstore quickstart` create one"), "{refused}");
    assert_eq!(Sqlite::stored_deployment(folder.path()).unwrap(), None);
    let store = Sqlite::open(&quickstart).unwrap();
    assert_eq!(store.deployment, Deployment::Staging);
    store.close().await;
}

#[tokio::test]
async fn store_of_the_first_schema_is_migrated() {
    const SQLITE: &str = include_str!("../../migrations/sqlite/V0001__store.sql");
    const POSTGRESQL: &str = include_str!("../../migrations/postgres/V0001__store.sql");
    // There are stores that the first migration made, so it never changes.
    let digests = [SQLITE, POSTGRESQL].map(|sql| Sha256::digest(sql)[..4].to_vec());
    assert_eq!(digests, [[0xfa, 0xc5, 0x08, 0xd1], [0xae, 0xfd, 0xc5, 0x2e]]);
    let rows = "INSERT INTO schema_history (version, name) VALUES (1, 'store');
        INSERT INTO meta (key, value) VALUES ('deployment', 'staging');
        INSERT INTO accounts (email, email_folded, role, created_at) VALUES ('Ada@example.com', 'ada@example.com', 0, 1),
            ('Jose\u{301}@example.com', 'jose\u{301}@example.com', 0, 1),
            ('rene\u{301}@example.com', 'rene\u{301}@example.com', 0, 1),
            ('ren\u{e9}@example.com', 'ren\u{e9}@example.com', 0, 1)";
    let folder = tempfile::tempdir().unwrap();
    let file = rusqlite::Connection::open(folder.path().join("petstore.db")).unwrap();
    let key = "(7, 1, 'name', zeroblob(32), 'hint', 1, 2, 3, 4, 5, 1, 'prefer')";
    file.execute_batch(&format!("{SQLITE}; {rows}; INSERT INTO api_keys VALUES {key}")).unwrap();
    drop(file);
    let url = postgres::database();
    query(&url, &format!("{POSTGRESQL}; {rows}"));
    let open = async || [open_sqlite(&sqlite::Options::new(folder.path())), open_postgresql(&url).await];

    let ids = async || {
        let mut ids = Vec::new();
        for store in open().await {
            // The last two collide and keep their forms.
            for (address, id) in [
                ("ada@example.com", 1),
                ("jos\u{e9}@example.com", 2),
                ("jose\u{301}@example.com", 2),
                ("rene\u{301}@example.com", 3),
                ("REN\u{c9}@example.com", 4),
            ] {
                let found = store.find_account(&email(address)).await.unwrap();
                assert_eq!(found.map(|account| account.id.0), Some(id), "{address}");
            }
            for taken in ["jos\u{e9}@example.com", "rene\u{301}@example.com"] {
                let new = NewAccount::customer(email(taken), None);
                assert_eq!(store.create_account(new, OPERATOR).await.unwrap(), None, "{taken}");
            }
            ids.push(store.id().to_owned());
            store.close().await;
        }
        ids
    };
    let first = ids().await;
    let file = rusqlite::Connection::open(folder.path().join("petstore.db")).unwrap();
    assert!(file.prepare(&format!("SELECT * FROM api_keys INTERSECT VALUES {key}")).unwrap().exists([]).unwrap());
    drop(file);

    assert!(first.iter().all(|id| id.len() == 16) && first[0] != first[1], "{first:?}");
    assert_eq!(ids().await, first);
    assert_eq!(query(&url, "SELECT value FROM meta WHERE key = 'oldest_schema'"), "1");
}

#[tokio::test]
async fn missing_privilege_to_migrate_is_reported() {
    let url = postgres::database();
    // The grants of docs/scale-out.md. Before PostgreSQL 15, every role may create tables.
    let role = "REVOKE CREATE ON SCHEMA public FROM PUBLIC;
        CREATE ROLE petstore_serve LOGIN;
        GRANT USAGE ON SCHEMA public TO petstore_serve;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO petstore_serve";
    query(&url, role);

    let options = options(&url.replace("petstore@", "petstore_serve@"));
    let error = Postgres::open(&options).await.unwrap_err();

    let expected = "migration V1__store: permission denied for schema public (SQLSTATE 42501): \
        the role sees no tables of petstore and may not create them: grant it USAGE on their schema, or run `petstore migrate` \
        with the role that owns the database";
    assert!(error.to_string().ends_with(expected), "{error}");
    let is_refused = async |why| {
        let error = Postgres::check_openable(&options.cluster.url, false).await.unwrap_err().to_string();
        assert!(error.starts_with(why), "{error}");
    };
    is_refused("the role sees no tables of petstore and may not create them: ").await;
    query(&url, "CREATE TABLE orders ()");
    is_refused("another program has a table orders in this schema: ").await;
    query(&url, "DROP TABLE orders");
    open_postgresql(&url).await.close().await;
    let role = role.replace("CREATE ROLE", "ALTER ROLE");
    query(&url, &format!("{role}; REVOKE INSERT ON audit, pets FROM petstore_serve"));
    let lacking = "the role may not read and write pets, audit: ";
    is_refused(lacking).await;
    assert!(Postgres::open(&options).await.unwrap_err().to_string().starts_with(lacking));
    query(&url, "GRANT INSERT ON audit, pets TO petstore_serve");
    let open = open_with(&options).await;
    // Without a policy, it hides all rows.
    query(&url, "ALTER TABLE pets ENABLE ROW LEVEL SECURITY");
    is_refused("the role may not read and write pets: ").await;
    let hidden = open.count_pets().await.unwrap_err().to_string();
    assert!(hidden.starts_with("query would be affected by row-level security"), "{hidden}");
    open.close().await;
    // As while a restore runs.
    query(&url, "ALTER TABLE pets DISABLE ROW LEVEL SECURITY; DROP TABLE orders; CREATE TABLE orders ()");
    let unfinished = "orders has no foreign key: ";
    is_refused(unfinished).await;
    assert!(Postgres::open(&options).await.unwrap_err().to_string().starts_with(unfinished));
    // Existing tables seem missing.
    query(&url, "REVOKE USAGE ON SCHEMA public FROM PUBLIC, petstore_serve");
    let error = Postgres::open(&options).await.unwrap_err().to_string();
    assert!(error.contains("(SQLSTATE 3F000): the role sees no tables of petstore"), "{error}");
}
