//! Promise 40: a proxy and the service read the same bytes.
//!
//! Odd requests go through HAProxy, nginx and Caddy, and directly to the service. Taps behind the proxies compare
//! what a proxy forwards with what the service answers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use testkit::{Random, Shop, TIMEOUT, trial};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::proxy::{NAMES, Proxy, Upstreams};
use crate::proxy_cases::{self, HOST, LAST};
use crate::proxy_http2 as http2;
use crate::proxy_tap::{Findings, Head, Responses, tap};

/// Times without a byte after which a client takes its request for incomplete. The longer ones are for repetitions.
const SILENCES: [Duration; 3] = [Duration::from_millis(250), Duration::from_millis(2_500), Duration::from_secs(25)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_and_the_service_read_the_same_bytes() {
    let cases = trial::rounds(1_500);
    let Shop { database, key } = Shop::on_sqlite();
    let service = database.serve_with("--trusted-proxy 127.0.0.1 --security-contact mailto:security@shop.example");
    let mut random = Random::from_seed();
    let site = Site::start(service.store(), service.messages(), &mut random).await;
    let forwarded = || site.findings.forwarded.load(Ordering::Relaxed);
    let (mut tally, mut run) = (Tally::default(), 0);
    // On a busy machine, a response may take longer than a client waits for one.
    for silence in SILENCES {
        if run < u64::from(cases) {
            let before = forwarded();
            tally = site.run(cases, &key, silence, &mut random).await;
            run = forwarded() - before;
        }
    }
    let Tally { alike, stopped, repaired } = tally;
    site.assert_no_difference();
    // The cases test something only if the proxies forward many of them.
    assert!(run >= u64::from(cases), "{}", site.figure());
    site.is_up().await;
    assert_eq!(service.get("/livez", &key).status(), 200);
    trial::measured(&format!(
        "{cases} cases through each of HAProxy, nginx and Caddy: {}, {alike} answered as without the proxy, {stopped} stopped \
         by the proxy, {repaired} repaired by it",
        site.figure()
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_turn_http2_into_the_requests_that_they_count() {
    // A tenth of the cases, because HTTP/2 leaves less to read differently.
    let cases = trial::rounds(10_000) / 10;
    let Shop { database, key } = Shop::on_sqlite();
    let service = database.serve_with("--trusted-proxy 127.0.0.1 --security-contact mailto:security@shop.example");
    let mut random = Random::from_seed();
    let site = Site::start(service.store(), service.messages(), &mut random).await;
    let before = site.findings.forwarded.load(Ordering::Relaxed);
    let mut answered = 0;
    for silence in SILENCES {
        if answered < cases {
            answered += site.run_http2(cases, &key, silence, &mut random).await;
        }
    }
    site.assert_no_difference();
    site.is_up().await;
    // The plain request after an odd one is mostly forwarded, so the cases are well-formed enough.
    let forwarded = site.findings.forwarded.load(Ordering::Relaxed) - before;
    assert!(forwarded >= u64::from(cases) && answered >= cases, "{forwarded} forwarded, {answered} answered");
    trial::measured(&format!("{cases} HTTP/2 cases through each: {}", site.figure()));
}

/// Control: an origin that reads no bodies and resolves paths is detected behind every proxy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lenient_origin_is_detected_behind_every_proxy() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_leniently(stream));
        }
    });
    let mut random = Random::from_seed();
    let site = Site::start(origin, origin, &mut random).await;
    site.run(1_000, "no key", SILENCES[0], &mut random).await;
    let found = site.findings.relevant();
    for name in NAMES {
        let hidden = |difference: &&String| difference.starts_with(name) && difference.contains("no forwarded request");
        let count = found.iter().filter(hidden).count();
        println!("{name}: {count} responses to no forwarded request");
        assert!(count > 0, "{name}: none of {} differences", found.len());
    }
    assert!(found.iter().any(|difference| difference.contains("a blocked path")), "{} differences", found.len());
}

/// Three proxies in front of one origin.
struct Site {
    origin: SocketAddr,
    secret: String,
    proxies: Vec<Proxy>,
    findings: Arc<Findings>,
    serial: AtomicU32,
    /// Ends of proxies. Caddy 2.6.2 of Debian 12 crashes if a client is gone when a "100 Continue" arrives.
    ends: AtomicU32,
}

impl Site {
    async fn start(store: SocketAddr, messages: SocketAddr, random: &mut Random) -> Self {
        let secret = format!("by-proxy-{:016x}", random.next());
        let findings = Arc::<Findings>::default();
        let mut proxies = Vec::new();
        for name in NAMES {
            let upstreams = Upstreams {
                store: tap(store, name, &secret, &findings).await,
                messages: tap(messages, name, &secret, &findings).await,
                store_health: store.port(),
                messages_health: messages.port(),
            };
            proxies.push(Proxy::start(name, &secret, &upstreams));
        }
        let site =
            Self { origin: store, secret, proxies, findings, serial: AtomicU32::new(0), ends: AtomicU32::new(0) };
        site.is_up().await;
        site
    }

    /// Waits until every proxy forwards plain requests.
    async fn is_up(&self) {
        for (name, proxy) in NAMES.iter().zip(&self.proxies) {
            assert!(timeout(TIMEOUT, self.is_forwarding(proxy.address)).await.is_ok(), "{name} forwards no requests");
        }
    }

    async fn is_forwarding(&self, address: SocketAddr) {
        let plain =
            |tag: &str| format!("GET /livez HTTP/1.1\r\nhost: {HOST}\r\nx-case: {tag}{LAST}\r\n\r\n").into_bytes();
        loop {
            let mut client = Client::new(self, address, SILENCES[1]);
            if client.exchange(plain).await.iter().any(|answer| answer.kind == Some(LAST) && answer.status == 200) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends the cases and compares each way with the direct one.
    async fn run(&self, cases: u32, key: &str, silence: Duration, random: &mut Random) -> Tally {
        let at_once = if trial::is_full() { 96 } else { 24 };
        let tally = Mutex::new(Tally::default());
        let clients = (0..at_once).map(|number| {
            let (mut random, tally) = (random.another(), &tally);
            async move {
                let client = |address| Client::new(self, address, silence);
                let mut direct = client(self.origin);
                let mut proxied: Vec<_> = self.proxies.iter().map(|proxy| client(proxy.address)).collect();
                for case in (number..cases).step_by(at_once as usize) {
                    let draws = random.another();
                    let bytes = |tag: &str| proxy_cases::case(&mut draws.clone(), tag, key);
                    let through = join_all(proxied.iter_mut().map(|client| client.exchange(bytes)));
                    let (direct, through) = tokio::join!(direct.exchange(bytes), through);
                    let mut tally = tally.lock().unwrap();
                    through.iter().for_each(|through| tally.add(&direct, through));
                    drop(tally);
                    if case % cases.div_ceil(10) == 0 {
                        println!("case {case} of {cases}");
                    }
                }
            }
        });
        self.supervised(join_all(clients)).await;
        tally.into_inner().unwrap()
    }

    /// Sends cases over HTTP/2. Returns the number of answered plain requests.
    async fn run_http2(&self, cases: u32, key: &str, silence: Duration, random: &mut Random) -> u32 {
        let at_once = if trial::is_full() { 96 } else { 24 };
        let clients = (0..at_once).map(|number| {
            let mut random = random.another();
            async move {
                let mut clients: Vec<_> = self.proxies.iter().map(|proxy| http2::Client::new(proxy.http2)).collect();
                let mut answered = 0;
                for case in (number..cases).step_by(at_once as usize) {
                    let draws = random.another();
                    let tag = format!("{:08}{:08}", self.serial.fetch_add(1, Ordering::Relaxed), case);
                    let through = clients.iter_mut().map(|client| {
                        let (mut draws, tag) = (draws.clone(), &tag);
                        async move { client.exchange(&mut draws, tag, key, silence).await }
                    });
                    answered += join_all(through).await.into_iter().map(u32::from).sum::<u32>();
                }
                answered
            }
        });
        self.supervised(join_all(clients)).await.into_iter().sum()
    }

    /// Restarts proxies that end during `work`.
    async fn supervised<T>(&self, work: impl Future<Output = T>) -> T {
        let restarts = async {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                for proxy in self.proxies.iter().filter(|proxy| proxy.restart_if_ended()) {
                    println!("{} has ended", proxy.name);
                    self.ends.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        tokio::select! {
            done = work => done,
            () = restarts => unreachable!("proxies are restarted for as long as there is work"),
        }
    }

    fn assert_no_difference(&self) {
        let found = self.findings.relevant();
        let shown: Vec<_> = found.iter().take(5).collect();
        assert!(found.is_empty(), "{} relevant differences, such as {shown:#?}", found.len());
    }

    fn figure(&self) -> String {
        let [forwarded, answered, unanswered] =
            [&self.findings.forwarded, &self.findings.answered, &self.findings.unanswered]
                .map(|of| of.load(Ordering::Relaxed));
        let ends = match self.ends.load(Ordering::Relaxed) {
            0 => String::new(),
            ends => format!(" ({ends} times a proxy ended and was restarted)"),
        };
        format!(
            "{forwarded} requests forwarded, {answered} answered, {unanswered} closed on, {} relevant differences{ends}",
            self.findings.relevant().len()
        )
    }
}

/// One response to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    /// The mark of the request. `None` if the response is the proxy's own or the parser's.
    kind: Option<char>,
    status: u16,
}

/// A client with a connection that it uses for as many cases as possible.
struct Client<'s> {
    site: &'s Site,
    address: SocketAddr,
    silence: Duration,
    connection: Option<(TcpStream, Responses)>,
    /// Numbers of the connection and of its last case.
    serial: u32,
    sent: u32,
}

impl<'s> Client<'s> {
    fn new(site: &'s Site, address: SocketAddr, silence: Duration) -> Self {
        Self { site, address, silence, connection: None, serial: 0, sent: 0 }
    }

    /// Sends a case and reads until the response to its last request, the end of the connection, or silence.
    async fn exchange(&mut self, case: impl Fn(&str) -> Vec<u8>) -> Vec<Answer> {
        let (mut stream, mut responses) = match self.connection.take() {
            Some(open) => open,
            None => {
                self.serial = self.site.serial.fetch_add(1, Ordering::Relaxed);
                let Ok(stream) = TcpStream::connect(self.address).await else { return Vec::new() };
                // The client does not keep a port after a reset.
                stream.set_zero_linger().unwrap();
                (stream, Responses::default())
            }
        };
        self.sent += 1;
        let tag = format!("{:08}{:08}", self.serial, self.sent);
        let mut answers = Vec::new();
        // The other side may have closed the connection, and its responses can still be read.
        let _ = timeout(self.silence, stream.write_all(&case(&tag))).await;
        let mut bytes = [0; 8192];
        while let Ok(Ok(read @ 1..)) = timeout(self.silence, stream.read(&mut bytes)).await {
            for head in responses.read(&bytes[..read]) {
                let kind = self.check(&head, &tag);
                answers.push(Answer { kind, status: head.status });
                if kind == Some(LAST) {
                    if !head.closes {
                        self.connection = Some((stream, responses));
                    }
                    return answers;
                }
            }
        }
        answers
    }

    /// Returns the mark of the answered request. Reports a response to another client's request.
    fn check(&self, head: &Head, tag: &str) -> Option<char> {
        let id = head.id.as_deref()?;
        let mark = id.strip_prefix("d-").or_else(|| id.strip_prefix(&self.site.secret)?.get(1..))?;
        // Without a mark, the proxy has read the headers as something else.
        let (answered, rest) = mark.split_at_checked(tag.len())?;
        if !answered.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        if answered[..8] != tag[..8] {
            self.site.findings.add(format!("client: {tag} received the response to {answered}: {head:?}"));
        }
        (answered == tag).then(|| rest.chars().next()).flatten()
    }
}

/// Counts of cases by their treatment.
#[derive(Default)]
struct Tally {
    alike: u32,
    /// The proxy answered itself, or closed the connection.
    stopped: u32,
    /// The proxy accepted more than the service, and forwarded it in a form that the service accepts.
    repaired: u32,
}

impl Tally {
    fn add(&mut self, direct: &[Answer], proxied: &[Answer]) {
        let marked = |answers: &[Answer]| {
            let marked = answers.iter().filter(|answer| answer.kind.is_some());
            marked.cloned().collect::<Vec<_>>()
        };
        let (direct, by_service) = (marked(direct), marked(proxied));
        if by_service == direct {
            self.alike += 1;
        } else if by_service.len() < direct.len() || by_service.len() < proxied.len() {
            self.stopped += 1;
        } else {
            self.repaired += 1;
        }
    }
}

/// Responds to everything that looks like a request, as if no request had a body. Decodes and resolves paths.
async fn serve_leniently(mut stream: TcpStream) {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut bytes).await {
        text += &String::from_utf8_lossy(&bytes[..read]);
        while let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let id = head
                .lines()
                .filter_map(|line| line.split_once(": "))
                .find(|(name, _)| name.eq_ignore_ascii_case("x-request-id"));
            let target = head.split_whitespace().nth(1).unwrap_or_default();
            let path = percent_encoding::percent_decode_str(target).decode_utf8_lossy();
            let kind = if path.contains("/.well-known/security.txt") { "text/plain" } else { "application/json" };
            let response = format!(
                "HTTP/1.1 200 OK\r\nx-request-id: {}\r\ncontent-type: {kind}\r\ncontent-length: 0\r\n\r\n",
                id.map_or("", |(_, id)| id)
            );
            text = rest.to_owned();
            if stream.write_all(response.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}
