//! A web server that receives messages, which a test may kill and restart.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{self, shutdown};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::postgres::free_port;
use crate::tls::Certificate;
use crate::wait::{TIMEOUT, within};

/// Writes the response to a delivery. After an error, the connection is closed.
type Respond = Box<dyn Fn(&Delivery, &mut dyn Write) -> io::Result<()> + Send + Sync>;

/// A server on a port of the loopback. Its connections are closed on drop.
pub struct Endpoint {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    running: Option<(Arc<TcpListener>, JoinHandle<()>)>,
}

struct Shared {
    respond: Respond,
    tls: Option<Arc<ServerConfig>>,
    deliveries: Mutex<Vec<Delivery>>,
    open: Mutex<Vec<TcpStream>>,
    connections: AtomicUsize,
}

/// A request, as it arrived.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub at: Instant,
    /// The request line and the headers.
    pub head: Vec<String>,
    pub body: String,
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

impl Endpoint {
    /// A server that acknowledges every message.
    pub fn acknowledging() -> Self {
        Self::start(|_, out| reply(out, "204 No Content", ""))
    }

    pub fn start(respond: impl Fn(&Delivery, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::with(None, Box::new(respond))
    }

    /// A server with TLS that acknowledges every message.
    pub fn with_certificate(certificate: &Certificate) -> Self {
        Self::with(Some(certificate.server_config()), Box::new(|_, out| reply(out, "204 No Content", "")))
    }

    fn with(tls: Option<Arc<ServerConfig>>, respond: Respond) -> Self {
        let shared = Shared {
            respond,
            tls,
            deliveries: Mutex::default(),
            open: Mutex::default(),
            connections: AtomicUsize::new(0),
        };
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut endpoint = Self { address, shared: Arc::new(shared), running: None };
        endpoint.start_again();
        endpoint
    }

    /// Listens again on the same port.
    pub fn start_again(&mut self) {
        let listener = Arc::new(TcpListener::bind(self.address).unwrap());
        let (accepting, shared) = (Arc::clone(&listener), Arc::clone(&self.shared));
        let accepting = thread::spawn(move || {
            loop {
                let (stream, shared) = match accepting.accept() {
                    // The port was closed.
                    Err(error) if error.kind() == ErrorKind::InvalidInput => return,
                    accepted => (accepted.unwrap().0, Arc::clone(&shared)),
                };
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let closed = stream.try_clone().unwrap();
                shared.open.lock().unwrap().push(stream.try_clone().unwrap());
                // Ends with the connection.
                thread::spawn(move || {
                    shared.serve(stream);
                    let _ = closed.shutdown(Shutdown::Both);
                });
            }
        });
        self.running = Some((listener, accepting));
    }

    /// Closes the port and all connections.
    pub fn kill(&mut self) {
        let (listener, accepting) = self.running.take().expect("the server is running");
        // Dropping the listener would not close the port while a child that another thread has forked has not yet executed
        // its program.
        shutdown(&*listener, net::Shutdown::Both).unwrap();
        accepting.join().unwrap();
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// All deliveries so far, in the order of their arrival.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.shared.deliveries.lock().unwrap().clone()
    }

    /// Waits for `number` deliveries, and a moment longer for others.
    pub fn arrived(&self, number: usize) -> Vec<Delivery> {
        within(TIMEOUT, "relaying", || self.deliveries().len() >= number);
        thread::sleep(Duration::from_millis(300));
        let deliveries = self.deliveries();
        assert_eq!(deliveries.len(), number, "each message arrives once");
        deliveries
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.kill();
        }
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => Box::new(StreamOwned::new(ServerConnection::new(Arc::clone(tls)).unwrap(), stream)),
        };
        let mut stream = BufReader::new(stream);
        while let Ok(Some(delivery)) = read(&mut stream) {
            self.deliveries.lock().unwrap().push(delivery.clone());
            if (self.respond)(&delivery, stream.get_mut()).is_err() {
                return;
            }
        }
    }
}

impl Delivery {
    /// The value of a header. Panics if it is missing.
    pub fn header(&self, name: &str) -> &str {
        let value = self.head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("{name} is missing: {self:?}"))
    }

    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }

    /// Returns whether the message contains `text`.
    pub fn has(&self, text: &str) -> bool {
        self.body.contains(text)
    }
}

/// Writes a response without a body. `headers` are lines.
pub fn reply(out: &mut dyn Write, status: &str, headers: &str) -> io::Result<()> {
    let length = if status.starts_with("204") { "" } else { "content-length: 0\r\n" };
    out.write_all(format!("HTTP/1.1 {status}\r\n{length}{headers}\r\n").as_bytes())?;
    out.flush()
}

/// Reads a request. `None` at the end of the connection.
fn read(stream: &mut impl BufRead) -> io::Result<Option<Delivery>> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let mut delivery = Delivery { at: Instant::now(), head, body: String::new() };
    let mut body = vec![0; delivery.header("content-length").parse().unwrap()];
    stream.read_exact(&mut body)?;
    delivery.body = String::from_utf8(body).unwrap();
    Ok(Some(delivery))
}
