//! A simulated web server that receives messages. The text of a message says how it responds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use petstore::domain::{AccountId, Deployment, Message, MessageId};
use petstore::relay::{Broker, Delays, Deliveries, Failure, Receiver};
use tokio::time::{Instant, sleep};

/// Maximum time until the response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Its messages, by account, with the times at which they were first acknowledged.
#[derive(Clone, Default)]
pub struct WebServer(Arc<Mutex<BTreeMap<(i64, MessageId), Instant>>>);

/// The web server, as one process reaches it.
pub struct Endpoint {
    server: WebServer,
    delays: Arc<Mutex<Delays>>,
}

impl WebServer {
    pub fn endpoint(&self) -> Endpoint {
        Endpoint { server: self.clone(), delays: Arc::default() }
    }

    /// When the messages of an account were acknowledged.
    pub fn acknowledged(&self, account: AccountId) -> Vec<Instant> {
        let all = self.0.lock();
        all.range((account.0, MessageId::MIN)..=(account.0, MessageId::MAX)).map(|(_, at)| *at).collect()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the simulated web server")
    }
}

impl Broker for Endpoint {
    type Stream = Deliveries<WebServer>;

    async fn connect(&self, _: Deployment) -> Result<Self::Stream, String> {
        Ok(Deliveries::new(Arc::new(self.server.clone()), Arc::clone(&self.delays)))
    }
}

impl Receiver for WebServer {
    /// Responds after the time and with the status that the text consists of, in milliseconds.
    async fn deliver(&self, message: &Message) -> Result<(), Failure> {
        let (time, status) = message.text.as_str().split_once(' ').expect("a time and a status");
        let time = Duration::from_millis(time.parse().expect("a number"));
        sleep(time.min(TIMEOUT)).await;
        match status {
            _ if time > TIMEOUT => Err(Failure::Endpoint("no response".into(), None)),
            "200" => {
                self.0.lock().entry((message.account.0, message.id)).or_insert_with(Instant::now);
                Ok(())
            }
            "500" => Err(Failure::Endpoint("status 500".into(), None)),
            _ => Err(Failure::Message(format!("status {status}"))),
        }
    }
}
