//! One connection to the server, and what is prepared on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::select_ok;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Client, Socket, Statement};

use super::tls;
use super::url::DatabaseUrl;
use super::{accounts, idempotency, keys, messages, orders, outbox, pets, sessions};
use crate::store::{Result, StoreError};

/// For a connection to be made, whichever of the hosts it is to, and once more for it to be ready.
const OPEN: Duration = Duration::from_secs(3);

/// Settings of every connection. They override those of the server, the role, the database and the URL.
///
/// Warnings must arrive, because an answer may depend on one (see [`Connection::warnings`]). `synchronous_commit` is at
/// least `on`, or `remote_write` or `remote_apply` if the operator chose that. It is set to its own value too, because
/// a later change of the server's configuration must not reach this connection.
const DURABLE: &str = "SET client_min_messages = warning;
    SELECT set_config('synchronous_commit', CASE WHEN chosen IN ('off', 'local') THEN 'on' ELSE chosen END, false)
    FROM current_setting('synchronous_commit') AS chosen";

/// Plans are made once and use indexes: with them it does not matter how large a table was when its plan was made. The
/// timeouts end statements that petstore has abandoned. `lock_timeout` is shorter than the writer's wait for its batch
/// (`COMMIT`), so that abandoned statements do not queue in the server.
const SETTINGS: &str =
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off;
    SET statement_timeout = '5s'; SET lock_timeout = '1400ms'; LISTEN petstore_keys";

/// A connection that is driven by a task of its own.
///
/// It ends when its client is dropped and all was answered, or at once by [`Connection::discard`].
#[derive(Debug)]
pub struct Connection {
    pub client: Client,
    warnings: Arc<AtomicU64>,
    driver: AbortHandle,
    discarded: AtomicBool,
}

impl Connection {
    /// Connects to the first of the hosts that answers and takes writes: all are asked at once, so that one which hangs
    /// holds nobody up. `keys_changed` is told when the server says that a key was.
    pub async fn open(url: &DatabaseUrl, keys_changed: Arc<Notify>) -> Result<(Self, JoinHandle<()>)> {
        let tls = url.tls().connector()?;
        let asked = url.hosts().iter().map(|host| Box::pin(host.connect(tls.clone())));
        let connected = timeout(OPEN, select_ok(asked)).await;
        let ((client, connection), _others) = connected.map_err(|_| silent(OPEN))??;
        let warnings = Arc::new(AtomicU64::new(0));
        let driver = tokio::spawn(drive(connection, Arc::clone(&warnings), keys_changed));
        let discarded = AtomicBool::new(false);
        let connection = Self { client, warnings, driver: driver.abort_handle(), discarded };
        let told = timeout(OPEN, connection.client.batch_execute(DURABLE)).await;
        match told.map_err(|_| silent(OPEN)).and_then(|told| Ok(told?)) {
            Ok(()) => Ok((connection, driver)),
            Err(error) => {
                connection.discard();
                Err(error)
            }
        }
    }

    /// How often the server has warned on this connection.
    ///
    /// A commit whose wait for the synchronous standby was cut short is reported as a success, with a warning before
    /// it: a write during which this number has moved is not known to be safe.
    pub fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Acquire)
    }

    /// Fails where the server has warned since it had warned `before` times.
    pub fn not_warned_since(&self, before: u64) -> Result<()> {
        match self.warnings() == before {
            true => Ok(()),
            false => Err(StoreError::Unavailable("PostgreSQL warned during a write, so it may not be safe".into())),
        }
    }

    /// Closes the connection without a word. What is under way on the server is not cancelled: a commit that was
    /// waited for too long may still come to be, and then should.
    pub fn discard(&self) {
        self.discarded.store(true, Ordering::Release);
        self.driver.abort();
    }

    pub fn is_usable(&self) -> bool {
        !self.discarded.load(Ordering::Acquire) && !self.client.is_closed()
    }
}

async fn drive(
    mut connection: tokio_postgres::Connection<Socket, tls::Stream>,
    warnings: Arc<AtomicU64>,
    keys_changed: Arc<Notify>,
) {
    while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            // Counted before the answer that follows is passed on.
            AsyncMessage::Notice(notice) if notice.parsed_severity() == Some(Severity::Warning) => {
                warnings.fetch_add(1, Ordering::Release);
                tracing::warn!(warning = notice.message(), "PostgreSQL warns");
            }
            AsyncMessage::Notification(_) => keys_changed.notify_one(),
            _ => {}
        }
    }
}

/// A connection with every statement prepared that requests need; shared by who asks, who are answered in turn.
#[derive(Debug)]
pub struct Session {
    pub connection: Connection,
    pub statements: Statements,
}

// A macro, so that a statement is named once and not three times.
macro_rules! statements {
    ($($name:ident: $sql:expr,)*) => {
        #[derive(Debug)]
        pub struct Statements { $(pub $name: Statement,)* }

        impl Statements {
            async fn prepare(client: &Client) -> std::result::Result<Self, tokio_postgres::Error> {
                // Asked for at once, so that all of them take one round trip. In boxes, since together they are as large as
                // a part of the stack that is felt.
                let ($($name,)*) = tokio::try_join!($(Box::pin(client.prepare($sql)),)*)?;
                Ok(Self { $($name,)* })
            }
        }
    };
}

statements! {
    insert_pets: pets::INSERT,
    list_pets: pets::LIST,
    list_pets_by_status: pets::LIST_BY_STATUS,
    find_pets: pets::FIND,
    insert_messages: messages::INSERT,
    list_messages_of: messages::LIST_OF,
    unsent_messages: outbox::UNSENT,
    mark_messages_sent: outbox::MARK_SENT,
    delete_sent_messages: outbox::DELETE_SENT,
    count_unsent_messages: outbox::COUNT_UNSENT,
    place_orders: orders::PLACE,
    step_order: orders::TAKE_STEP,
    list_orders: orders::LIST,
    list_orders_by_status: orders::LIST_BY_STATUS,
    insert_account: accounts::INSERT,
    find_account: accounts::FIND,
    list_accounts: accounts::LIST,
    find_password: accounts::FIND_PASSWORD,
    accounts_exist: accounts::EXIST,
    insert_session: sessions::INSERT,
    find_session: sessions::FIND,
    touch_session: sessions::TOUCH,
    delete_session: sessions::DELETE,
    insert_key: keys::INSERT,
    list_keys: keys::LIST,
    list_keys_of: keys::LIST_OF,
    find_key_of: keys::FIND_OF,
    find_keys: keys::FIND,
    revoke_key: keys::REVOKE,
    rotate_key: keys::ROTATE,
    touch_keys: keys::TOUCH,
    keys_version: keys::VERSION,
    take_idempotency_keys: idempotency::TAKE,
    find_answers: idempotency::FIND,
    keep_answers: idempotency::KEEP,
    give_back_idempotency_keys: idempotency::GIVE_BACK,
    delete_expired_answers: idempotency::DELETE_EXPIRED,
    read_only: "SHOW transaction_read_only",
}

impl Session {
    pub async fn open(url: &DatabaseUrl, keys_changed: Arc<Notify>) -> Result<(Arc<Self>, JoinHandle<()>)> {
        let (connection, driver) = Connection::open(url, keys_changed).await?;
        let prepared = timeout(OPEN, async {
            connection.client.batch_execute(SETTINGS).await?;
            Statements::prepare(&connection.client).await
        });
        let statements = prepared.await.map_err(|_| silent(OPEN)).and_then(|prepared| Ok(prepared?));
        match statements {
            Ok(statements) => Ok((Arc::new(Self { connection, statements }), driver)),
            Err(error) => {
                connection.discard();
                Err(error)
            }
        }
    }

    /// Whether the server still takes writes: one that was demoted goes on answering reads, with what is old.
    pub async fn takes_writes(&self, patience: Duration) -> Result<bool> {
        let answer = timeout(patience, self.connection.client.query_one(&self.statements.read_only, &[])).await;
        let row = answer.map_err(|_| silent(patience))??;
        Ok(row.try_get::<_, &str>(0)? == "off")
    }
}

/// What to say of a server that gives no answer.
pub fn silent(patience: Duration) -> StoreError {
    StoreError::Unavailable(format!("PostgreSQL did not answer within {patience:?}"))
}
