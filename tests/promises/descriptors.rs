//! Promise 20: a process that runs out of file descriptors neither spins nor stays deaf.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;
use testkit::trial::{self, is_full};
use testkit::{Database, SERVE, Server, within};

const DESCRIPTORS: u32 = 128;
const CLIENTS: usize = 500;

/// How long to wait for a connection that the system does not even queue.
const BACKLOG: Duration = Duration::from_millis(100);

/// For an answer that has come already, and for one that is about to.
const HERE: Duration = Duration::from_millis(1);
const SOON: Duration = Duration::from_millis(200);

/// `petstore serve` where only so many files can be open.
fn serve(database: &Database, more: &str) -> Server {
    let plain = database.petstore("x");
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {DESCRIPTORS}; exec \"$0\" {SERVE} {more}")]).arg(plain.get_program());
    limited.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Server::start(limited)
}

#[test]
fn running_out_of_descriptors_does_no_lasting_harm() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::folder(folder.path());
    let key = database.make_key();
    // As it comes, it keeps within its descriptors; told to take more connections than it has, it runs into the wall.
    let mut figures = Vec::new();
    for (more, runs_out) in [("", false), ("--max-connections 10000", true)] {
        let service = serve(&database, more);
        let request = format!("GET /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n");
        let mut clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut stream = TcpStream::connect_timeout(&service.store.parse().unwrap(), BACKLOG).ok()?;
                // Who was refused already can't be written to.
                let _ = stream.write_all(request.as_bytes());
                Some(stream)
            })
            .collect();
        assert!(clients.iter().all(Option::is_some), "some could not even connect");
        // They hold on to their connections. Meanwhile whoever was let in is answered, and nothing spins.
        thread::sleep(Duration::from_millis(500));
        let (before, time) = (service.cpu(), Duration::from_secs(2));
        thread::sleep(time);
        let spent = service.cpu() - before;
        assert!(spent < time / 5, "{spent:?} of {time:?} were spent on nothing");
        let answers = clients
            .iter_mut()
            .map(|client| client.as_mut().and_then(|client| status(client, HERE)))
            .collect::<Vec<_>>();
        let count = |status: u16| answers.iter().filter(|answer| **answer == Some(status)).count();
        let (served, refused) = (count(200), count(503));
        assert!(served >= 8 && served < DESCRIPTORS as usize, "{served} served");
        assert_eq!(refused > 0, !runs_out, "{refused} refused");
        assert_eq!(served + refused + answers.iter().filter(|answer| answer.is_none()).count(), CLIENTS);

        drop(clients);
        let limit = Duration::from_secs(if is_full() { 2 } else { 20 });
        let back = within(limit, "accepting again", || {
            let next = TcpStream::connect_timeout(&service.store.parse().unwrap(), BACKLOG);
            next.is_ok_and(|mut stream| {
                stream.write_all(request.as_bytes()).is_ok() && status(&mut stream, SOON) == Some(200)
            })
        });
        figures.push(format!(
            "{}: {served} served, {refused} refused, {} ms of CPU in 2 s, accepts again after {} ms",
            if runs_out { "told to take more than it can" } else { "as it comes" },
            spent.as_millis(),
            back.as_millis()
        ));
    }
    trial::measured(&format!("{CLIENTS} clients, {DESCRIPTORS} descriptors; {}", figures.join("; ")));
}

/// The status of what has come, or comes in time.
fn status(stream: &mut TcpStream, patience: Duration) -> Option<u16> {
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut head = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut head).ok()?;
    std::str::from_utf8(&head[9..]).ok()?.parse().ok()
}
