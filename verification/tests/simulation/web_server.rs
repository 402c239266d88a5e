//! A simulated web server that receives messages, reached through a network that loses them and their responses.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use petstore::domain::{AccountId, Message, MessageId};
use petstore::relay::{Failure, Receiver};
use testkit::Random;
use tokio::time::{Instant, sleep};

use crate::bugs::Bug;
use crate::disk;
use crate::lives::ProcessId;
use crate::trace;

/// Maximum time until the response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The pause that the server demands with status 429.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The messages, and the state of the network.
#[derive(Clone)]
pub struct WebServer(Arc<Mutex<State>>);

struct State {
    /// Texts by account and id, with the times at which they first arrived.
    received: BTreeMap<(i64, MessageId), (String, Instant)>,
    /// Number of messages whose text says how to respond, as often as they were sent.
    scripted: usize,
    is_up: bool,
    /// Percentage of messages that are lost, and of responses.
    loss: u64,
    /// Connections made before this number are broken.
    connection: u64,
    random: Random,
    planted: Option<Bug>,
}

/// The web server, as one process reaches it.
pub struct Endpoint {
    server: WebServer,
    process: ProcessId,
}

impl WebServer {
    pub fn new(random: Random, planted: Option<Bug>) -> Self {
        let received = BTreeMap::new();
        Self(Arc::new(Mutex::new(State {
            received,
            scripted: 0,
            is_up: true,
            loss: 0,
            connection: 0,
            random,
            planted,
        })))
    }

    pub fn endpoint(&self, process: ProcessId) -> Endpoint {
        Endpoint { server: self.clone(), process }
    }

    /// Stops a server that runs, and starts one that does not.
    pub fn stop_or_start(&self) {
        let mut state = self.0.lock();
        state.is_up = !state.is_up;
        state.connection += 1;
    }

    /// Breaks all connections.
    pub fn disconnect(&self) {
        self.0.lock().connection += 1;
    }

    pub fn set_loss(&self, percentage: u64) {
        self.0.lock().loss = percentage;
    }

    /// Ends all faults.
    pub fn recover(&self) {
        let mut state = self.0.lock();
        (state.is_up, state.loss) = (true, 0);
    }

    /// The ids of each text. Several ids are several messages.
    pub fn ids(&self) -> BTreeMap<String, Vec<MessageId>> {
        let mut ids: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((_, id), (text, _)) in &self.0.lock().received {
            ids.entry(text.clone()).or_default().push(*id);
        }
        ids
    }

    pub fn scripted(&self) -> usize {
        self.0.lock().scripted
    }

    /// When the messages of an account arrived.
    pub fn arrivals(&self, account: AccountId) -> Vec<Instant> {
        let received = &self.0.lock().received;
        received.range((account.0, MessageId::MIN)..=(account.0, MessageId::MAX)).map(|(_, (_, at))| *at).collect()
    }
}

impl State {
    fn receive(&mut self, message: &Message) {
        let text = message.text.as_str();
        self.received.entry((message.account.0, message.id)).or_insert_with(|| (text.to_owned(), Instant::now()));
    }

    fn loses(&mut self) -> bool {
        self.random.below(100) < self.loss
    }
}

impl Endpoint {
    /// Takes a random time. Never returns to a process that has stopped meanwhile.
    async fn travel(&self) {
        let time = 1 + self.server.0.lock().random.below(20);
        sleep(Duration::from_millis(time)).await;
        if disk::with(|disk| disk.is_dead(self.process)) {
            std::future::pending::<()>().await;
        }
    }

    /// Carries a message to the server and the response back.
    async fn send(&self, message: &Message) -> Result<(), &'static str> {
        let connection = self.server.0.lock().connection;
        self.travel().await;
        let is_answered = {
            let mut state = self.server.0.lock();
            if !state.is_up || state.connection != connection {
                return Err("the connection is lost");
            }
            let arrives = !state.loses();
            if arrives && state.random.below(50) == 0 {
                return Err("status 500");
            }
            if arrives {
                state.receive(message);
                trace::note_text("received", message.text.as_str());
            }
            arrives && !state.loses()
        };
        self.travel().await;
        if self.server.0.lock().connection != connection {
            return Err("the connection is lost");
        }
        if !is_answered {
            sleep(TIMEOUT).await;
            return Err("no response");
        }
        Ok(())
    }
}

impl Receiver for Endpoint {
    /// If the text is a time in milliseconds and a status, such as `5 200`, responds accordingly.
    async fn deliver(&self, message: &Message) -> Result<(), Failure> {
        let Some((time, status)) = message.text.as_str().split_once(' ') else {
            let claims = self.server.0.lock().planted == Some(Bug::SentWithoutAcknowledgement);
            let sent = self.send(message).await;
            return if claims { Ok(()) } else { sent.map_err(|why| Failure::Endpoint(why.into(), None)) };
        };
        self.server.0.lock().scripted += 1;
        let time = Duration::from_millis(time.parse().expect("a number"));
        sleep(time.min(TIMEOUT)).await;
        match status {
            _ if time > TIMEOUT => Err(Failure::Endpoint("no response".into(), None)),
            "200" => {
                self.server.0.lock().receive(message);
                Ok(())
            }
            "500" => Err(Failure::Endpoint("status 500".into(), None)),
            "429" => Err(Failure::Endpoint("status 429".into(), Some(RETRY_AFTER))),
            _ => Err(Failure::Message(format!("status {status}"))),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the simulated web server")
    }
}
