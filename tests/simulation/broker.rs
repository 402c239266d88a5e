//! A simulated broker with a stream, reached through a network that loses and repeats.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use petstore::domain::{Deployment, Message, MessageId};
use petstore::relay::{Broker, Published, Stream};
use testkit::Random;
use tokio::time::sleep;

use crate::bugs::Bug;
use crate::disk;
use crate::lives::ProcessId;
use crate::trace;

/// Maximum time that the relay waits for acknowledgements.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The stream and the state of its network.
pub struct Nats {
    /// The ids of each text. Several ids are several messages.
    pub stream: BTreeMap<String, Vec<MessageId>>,
    pub is_up: bool,
    /// Percentage of messages that are lost, and of acknowledgements.
    pub loss: u64,
    /// Connections made before this number are broken.
    connection: u64,
    random: Random,
    planted: Option<Bug>,
}

/// The broker, as one process reaches it.
#[derive(Clone)]
pub struct Route {
    pub nats: Arc<Mutex<Nats>>,
    pub process: ProcessId,
}

pub struct Connection {
    route: Route,
    number: u64,
}

enum Reply {
    Acknowledged,
    Rejected,
    Nothing,
}

impl Nats {
    pub fn new(random: Random, planted: Option<Bug>) -> Self {
        Self { stream: BTreeMap::new(), is_up: true, loss: 0, connection: 0, random, planted }
    }

    /// Breaks all connections.
    pub fn disconnect(&mut self) {
        self.connection += 1;
    }

    /// Carries a message to the stream and the response back. Returns what the relay receives.
    fn publish(&mut self, message: &Message) -> Reply {
        let claims = self.planted == Some(Bug::SentWithoutAcknowledgement);
        let reply = |is_received: bool| if claims || is_received { Reply::Acknowledged } else { Reply::Nothing };
        if self.random.below(100) < self.loss {
            return reply(false);
        }
        if self.random.below(50) == 0 {
            return Reply::Rejected;
        }
        let ids = self.stream.entry(message.text.as_str().to_owned()).or_default();
        // The stream recognizes a repeated message by its id.
        if !ids.contains(&message.id) {
            ids.push(message.id);
        }
        trace::note_text("stored", message.text.as_str());
        reply(self.random.below(100) >= self.loss)
    }
}

impl Route {
    fn nats(&self) -> MutexGuard<'_, Nats> {
        self.nats.lock().unwrap()
    }

    /// Takes a random time. Never returns to a process that has stopped meanwhile.
    async fn travel(&self, at_most: u64) {
        let time = 1 + self.nats().random.below(at_most);
        sleep(Duration::from_millis(time)).await;
        if disk::with(|disk| disk.is_dead(self.process)) {
            std::future::pending::<()>().await;
        }
    }
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the simulated broker")
    }
}

impl Broker for Route {
    type Stream = Connection;

    async fn connect(&self, _: Deployment) -> Result<Connection, String> {
        self.travel(50).await;
        let nats = self.nats();
        if nats.is_up {
            Ok(Connection { route: self.clone(), number: nats.connection })
        } else {
            Err("the simulated broker is down".into())
        }
    }
}

impl Connection {
    fn is_up(&self) -> bool {
        let nats = self.route.nats();
        nats.is_up && nats.connection == self.number
    }
}

impl Stream for Connection {
    const BATCH: u32 = 256;

    async fn is_connected(&mut self) -> bool {
        self.is_up()
    }

    async fn publish(&mut self, messages: &[Message], published: &mut Published) {
        for message in messages {
            self.route.travel(3).await;
            let reply = if self.is_up() { self.route.nats().publish(message) } else { Reply::Nothing };
            match reply {
                Reply::Acknowledged => published.acknowledged.push((message.account, message.id)),
                Reply::Rejected => published.reject(message.id, "rejected"),
                Reply::Nothing => {
                    published.reject(message.id, "no acknowledgement");
                    published.has_unanswered = true;
                }
            }
        }
        if published.has_unanswered && self.is_up() {
            sleep(TIMEOUT).await;
        }
        self.route.travel(20).await;
    }
}
