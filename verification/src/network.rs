//! A network between two programs that can go silent: connections stay open, and no bytes arrive.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

pub struct Network {
    port: u16,
    silent: Arc<AtomicBool>,
}

impl Network {
    /// Forwards connections to `port` of this machine.
    pub fn to(port: u16) -> Self {
        Self::among(vec![port])
    }

    /// Forwards connections to these ports of this machine in turn.
    pub fn among(ports: Vec<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let network = Self { port: listener.local_addr().unwrap().port(), silent: Arc::default() };
        let silent = Arc::clone(&network.silent);
        thread::spawn(move || {
            for (client, port) in listener.incoming().zip(ports.into_iter().cycle()) {
                let (client, silent) = (client.unwrap(), Arc::clone(&silent));
                let target = SocketAddr::from(([127, 0, 0, 1], port));
                thread::spawn(move || forward_both_ways(&client, target, &silent));
            }
        });
        network
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database, reached through this network.
    pub fn url(&self, direct: &str) -> String {
        let (start, name) = direct.rsplit_once('/').unwrap();
        format!("{}:{}/{name}", start.rsplit_once(':').unwrap().0, self.port)
    }

    pub fn silence(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
    }
}

fn forward_both_ways(client: &TcpStream, target: SocketAddr, silent: &Arc<AtomicBool>) {
    wait_out(silent);
    let Ok(server) = TcpStream::connect(target) else { return };
    let back = {
        let (client, server, silent) = (client.try_clone().unwrap(), server.try_clone().unwrap(), Arc::clone(silent));
        thread::spawn(move || forward(&server, &client, &silent))
    };
    forward(client, &server, silent);
    back.join().unwrap();
}

fn forward(mut from: &TcpStream, mut to: &TcpStream, silent: &AtomicBool) {
    from.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut bytes = [0; 4096];
    loop {
        wait_out(silent);
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => {
                wait_out(silent);
                if to.write_all(&bytes[..read]).is_err() {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}

fn wait_out(silent: &AtomicBool) {
    while silent.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(5));
    }
}
