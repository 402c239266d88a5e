//! PgBouncer between petstore and PostgreSQL.

use std::process::Stdio;

use petstore::domain::PetStatus;
use petstore::store::Store;
use petstore::store::postgres::{Options, Postgres};
use testkit::postgres::{free_port, unprivileged};
use testkit::{Keeper, PostgresServer, TIMEOUT, within};

use crate::fixtures::{create_pet, options};

/// A PgBouncer in front of a new database. Ends on drop or with the test process.
struct PgBouncer {
    options: Options,
    _keeper: Keeper,
}

impl PgBouncer {
    /// Starts PgBouncer with `settings` in its configuration, one per line.
    fn start(settings: &str) -> Self {
        let server = PostgresServer::shared();
        let url = server.database();
        let database = url.rsplit('/').next().unwrap();
        let (port, server_port) = (free_port(), server.port());
        let file = server.folder.join(format!("pgbouncer-{port}.ini"));
        let config = format!(
            "[databases]\n{database} = host=127.0.0.1 port={server_port} user=petstore\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n{settings}\n"
        );
        std::fs::write(&file, config).unwrap();
        let mut command = unprivileged();
        command.args(["sh", "-c", r#"/usr/sbin/pgbouncer --quiet "$0" & cat; kill $!"#]).arg(&file);
        let keeper = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        within(TIMEOUT, "listening", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        let url = format!("postgres://petstore@127.0.0.1:{port}/{database}");
        Self { options: options(&url), _keeper: Keeper(keeper) }
    }

    async fn open(&self) -> Result<Store, String> {
        let opened = Postgres::open(&self.options).await;
        opened.map(|store| Store::Postgres(Box::new(store))).map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn pooler_that_shares_connections_is_rejected() {
    for mode in
        ["transaction", "statement", "transaction\nserver_round_robin = 1", "transaction\ndefault_pool_size = 1"]
    {
        let why = PgBouncer::start(&format!("pool_mode = {mode}")).open().await.map(drop).unwrap_err();
        assert!(why.contains("PgBouncer") && why.contains("pool_mode = session"), "{mode}: {why}");
    }
}

#[tokio::test]
async fn pooler_in_session_mode_works() {
    let pooler = PgBouncer::start("pool_mode = session\ndefault_pool_size = 40");
    let store = pooler.open().await.unwrap();
    let id = create_pet(&store, "Rex", PetStatus::Available).await.unwrap();
    assert_eq!(store.find_pet(id).await.unwrap().unwrap().name, "Rex");
    store.close().await;
}
