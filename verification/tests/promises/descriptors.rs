//! Promise 20: a process that runs out of file descriptors does not spin, and accepts connections again afterwards.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use testkit::{Database, Request, Server, Shop, TIMEOUT, eventually, trial, within};

const DESCRIPTORS: u32 = 128;
const CLIENTS: usize = 500;

/// Limit for connecting again. The kernel may not even queue a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(100);

/// Limits for a response that has arrived already, and for the next one.
const ARRIVED: Duration = Duration::from_millis(1);
const SOON: Duration = Duration::from_millis(200);

#[test]
fn running_out_of_descriptors_does_no_lasting_harm() {
    let Shop { database, key } = Shop::on_sqlite();
    let mut figures = Vec::new();
    // With the default connection limit the service keeps within its descriptors. With a larger one it runs out.
    for (flags, runs_out) in [("", false), ("--max-connections 10000", true)] {
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {DESCRIPTORS}; exec \"$0\" \"$@\"")]);
        let service = Server::start(database.petstore_by(limited, &format!("{} {flags}", Database::SERVE)));
        let address = service.store();
        let request = Request::new(address, "GET", "/v1/pets").key(&key).bytes();
        let connect = |limit| {
            let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
            // Fails if the connection was rejected already.
            let _ = stream.write_all(&request);
            Some(stream)
        };
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(TIMEOUT).expect("every client connects")).collect();
        // The clients keep their connections. The accepted ones are served meanwhile.
        thread::sleep(Duration::from_millis(500));
        let (mut spent, time) = (Duration::ZERO, Duration::from_secs(2));
        within(time, "resting without work", || {
            let before = service.cpu();
            thread::sleep(time);
            spent = service.cpu() - before;
            spent < time / 5
        });
        let mut statuses = vec![None; CLIENTS];
        let (served, refused) = eventually(time, "responses", || {
            for (known, client) in statuses.iter_mut().zip(&mut clients).filter(|(known, _)| known.is_none()) {
                *known = status(client, ARRIVED);
            }
            let count = |status: Option<u16>| statuses.iter().filter(|found| **found == status).count();
            let (served, refused) = (count(Some(200)), count(Some(503)));
            assert_eq!(served + refused + count(None), CLIENTS);
            (served >= 8 && (refused > 0 || runs_out)).then_some((served, refused))
        });
        assert!(served < DESCRIPTORS as usize, "{served} served");
        assert_eq!(refused > 0, !runs_out, "{refused} refused");

        drop(clients);
        let limit = Duration::from_secs(2);
        let [connecting, soon] = if trial::is_full() { [CONNECT_TIMEOUT, SOON] } else { [TIMEOUT; 2] };
        let is_served = || connect(connecting).is_some_and(|mut client| status(&mut client, soon) == Some(200));
        let back = within(limit, "accepting again", is_served);
        figures.push(format!(
            "{}: {served} served, {refused} refused, {} ms of CPU in 2 s, accepts again after {} ms",
            if runs_out { "told to accept more than it can" } else { "by default" },
            spent.as_millis(),
            back.as_millis()
        ));
    }
    trial::measured(&format!("{CLIENTS} clients, {DESCRIPTORS} descriptors; {}", figures.join("; ")));
}

/// The status of a response that arrives within `limit`.
fn status(stream: &mut TcpStream, limit: Duration) -> Option<u16> {
    stream.set_read_timeout(Some(limit)).unwrap();
    let mut head = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut head).ok()?;
    str::from_utf8(&head[9..]).ok()?.parse().ok()
}
