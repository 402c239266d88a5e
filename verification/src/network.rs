//! A network between two programs that can go silent: connections stay open, and no bytes arrive.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub struct Network {
    port: u16,
    silence: Arc<Silence>,
}

impl Network {
    /// Forwards connections to `port` of this machine.
    pub fn to(port: u16) -> Self {
        Self::among(vec![port])
    }

    /// Forwards connections to these ports of this machine in turn.
    pub fn among(ports: Vec<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let network = Self { port: listener.local_addr().unwrap().port(), silence: Arc::default() };
        let silence = Arc::clone(&network.silence);
        thread::spawn(move || {
            for (client, port) in listener.incoming().zip(ports.into_iter().cycle()) {
                let (client, silence) = (client.unwrap(), Arc::clone(&silence));
                let target = SocketAddr::from(([127, 0, 0, 1], port));
                thread::spawn(move || forward_both_ways(&client, target, &silence));
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
        self.silence.set(silent);
    }
}

fn forward_both_ways(client: &TcpStream, target: SocketAddr, silence: &Arc<Silence>) {
    silence.wait_out();
    let Ok(server) = TcpStream::connect(target) else { return };
    let back = {
        let (client, server, silence) = (client.try_clone().unwrap(), server.try_clone().unwrap(), Arc::clone(silence));
        thread::spawn(move || forward(&server, &client, &silence))
    };
    forward(client, &server, silence);
    back.join().unwrap();
}

fn forward(mut from: &TcpStream, mut to: &TcpStream, silence: &Silence) {
    let mut bytes = [0; 4096];
    loop {
        let read = from.read(&mut bytes);
        silence.wait_out();
        let Ok(read @ 1..) = read else { break };
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// While it is set, the network delivers nothing. Threads sleep until it ends instead of polling: while a hundred of them wake
/// up every 5 ms beside full load, Linux 6.18 keeps tasks of other sessions waiting for many seconds.
#[derive(Default)]
struct Silence(Mutex<bool>, Condvar);

impl Silence {
    fn set(&self, silent: bool) {
        *self.0.lock().unwrap() = silent;
        self.1.notify_all();
    }

    fn wait_out(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |silent| *silent).unwrap());
    }
}
