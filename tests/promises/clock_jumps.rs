//! Promise 32: jumps of the system clock prolong nothing and end nothing early.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;

use petstore::config::{Network, RateLimit};
use petstore::domain::Timestamp;
use petstore::domain::session::IDLE;
use testkit::blocking::{Response, post_once};
use testkit::console::PASSWORD;
use testkit::{ConsoleUser, Database, Random, Server, trial, within};

use crate::fake_clock::FakeClock;
use crate::service::{NOW, Service, Setup};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum true time between two jumps.
const LONGEST: Duration = Duration::from_secs(4 * 60 * 60);

/// Sign-in attempts of one address of mail: so many at once, and then one a minute.
const ATTEMPTS: usize = 10;

#[tokio::test]
async fn clock_jumps_prolong_nothing() {
    let (rounds, mut random) = (trial::rounds(12), Random::from_seed());
    let trusted_proxies = vec![Network::parse("127.0.0.1").unwrap()];
    let service = Service::start_with(Setup { trusted_proxies, ..Setup::default() }).await;
    // Expiries are spread over the true time of all rounds.
    let expiries = [1, 2, 3, 5].map(|quarters| NOW.plus(LONGEST / 8 * rounds * quarters));
    let mut keys = Vec::new();
    for expiry in expiries {
        keys.push((expiry, service.another_key(Some(expiry)).await.1));
    }
    let (mut ids, mut last, mut truth) = (HashSet::new(), 0, NOW);
    let (mut accepted, mut refused, mut ended, mut misjudged) = (0, 0, 0, 0);
    for round in 1..=rounds {
        let signed_in_at = truth;
        let mut ada = sign_up(&service, round).await;
        truth = jump(&service, truth, &mut random);
        let wall = service.clock.now();

        // Ids are unique, and ids of animals grow, at any reading of the system clock.
        let pet = service.post("/v1/pets", r#"{"name":"Rex","categoryId":1}"#).await;
        assert_eq!(pet.status(), 201, "{}", pet.body);
        let id = pet.json()["id"].as_i64().unwrap();
        assert!(id > last, "{id} after {last}");
        last = id;
        for _ in 0..3 {
            let message = service.message(r#"{"message":"Hello"}"#).await.json();
            assert_eq!(message["createdAt"], wall.to_string());
            assert!(ids.insert(message["id"].to_string()), "{message} has an id that was given before");
        }

        // A key works until its expiry in true time and fails afterwards. The stored expiry does not change.
        for (expiry, key) in &keys {
            let status = service.request("GET", "/v1/pets").key(key).send().await.status();
            assert_eq!(status, if truth < *expiry { 200 } else { 401 }, "at {truth}, with a key until {expiry}");
            *(if status == 200 { &mut accepted } else { &mut refused }) += 1;
            misjudged += u32::from((wall < *expiry) != (truth < *expiry));
        }
        assert_eq!(stored_expiries(&service), expiries);

        // A session ends in true time too.
        let lasts = truth < signed_in_at.plus(IDLE);
        assert_eq!(ada.is_signed_in().await, lasts, "signed in at {signed_in_at}, and it is {truth}");
        ended += u32::from(!lasts);
    }
    // Control: by the system clock, keys would have expired early or late.
    assert!(misjudged > 0 && accepted > 0 && refused > 0, "the test has tested little");
    trial::measured(&format!(
        "{rounds} jumps of an hour or a day, forth and back: {} ids unique, {accepted} uses of {} keys before their \
         expiry in true time and none of {refused} after, {ended} sessions ended; the system clock would have decided \
         {misjudged} uses otherwise",
        ids.len() + rounds as usize,
        keys.len()
    ));
}

/// Moves the system clock by an hour or a day, forth or back and never more than two days off, and advances time.
/// Returns the true time.
fn jump(service: &Service, truth: Timestamp, random: &mut Random) -> Timestamp {
    let by = if random.below(2) == 0 { HOUR } else { DAY };
    let wall = service.clock.now();
    let forth = if wall > truth.plus(DAY) { false } else { wall < truth.minus(DAY) || random.below(2) == 0 };
    service.clock.jump_to(if forth { wall.plus(by) } else { wall.minus(by) });
    let passing = Duration::from_millis(random.below(LONGEST.as_millis() as u64));
    service.clock.advance(passing);
    truth.plus(passing)
}

/// Signs up from a different network address each round, so that the limit per network address does not apply.
async fn sign_up(service: &Service, round: u32) -> ConsoleUser {
    let mut person = ConsoleUser::new(service);
    let email = format!("ada-{round}@example.com");
    let request = person.request("POST", "/sign-up").header("origin", &format!("http://{}", person.address));
    let request = request.header("x-forwarded-for", &Ipv4Addr::from_bits(round).to_string());
    person.send(request.form(&[("email", &email), ("password", PASSWORD)])).await;
    assert!(person.is_signed_in().await, "round {round}");
    person
}

/// A keyed response is replayed for a day of true time. Afterwards the request is carried out again.
#[tokio::test]
async fn clock_jumps_keep_responses_for_a_day() {
    let (rounds, mut random) = (trial::rounds(40), Random::from_seed());
    let service = Service::start().await;
    let ask = async |key: u32| {
        let request = service.request("POST", "/v1/pets").key(&service.key);
        let request = request.header("idempotency-key", &key.to_string());
        let answer = request.json(format!(r#"{{"name":"{key}","categoryId":1}}"#)).send().await;
        assert_eq!(answer.status(), 201, "{}", answer.body);
        answer
    };
    // The answer of each key, and its expiry.
    let mut kept: Vec<(String, Timestamp)> = Vec::new();
    let (mut truth, mut replayed, mut again, mut misjudged) = (NOW, 0, 0, 0);
    for round in 1..=rounds {
        kept.push((ask(round - 1).await.body, truth.plus(DAY)));
        truth = jump(&service, truth, &mut random);
        for _ in 0..4 {
            let key = random.below(u64::from(round)) as u32;
            let (body, expiry) = &mut kept[key as usize];
            misjudged += u32::from((service.clock.now() < *expiry) != (truth < *expiry));
            let answer = ask(key).await;
            let is_replayed = answer.header("idempotent-replayed").is_some();
            assert_eq!(is_replayed, answer.body == *body, "key {key}");
            assert_eq!(is_replayed, truth < *expiry, "key {key} is kept until {expiry}, and it is {truth}");
            replayed += u32::from(is_replayed);
            if !is_replayed {
                again += 1;
                (*body, *expiry) = (answer.body, truth.plus(DAY));
            }
        }
    }
    // Control: by the system clock, records would have expired early or late.
    assert!(replayed > 0 && again > 0 && misjudged > 0, "{replayed} replayed, {again} again: tested little");
    let effects: u32 = service.database().query_row("SELECT count(*) FROM pets", [], |row| row.get(0)).unwrap();
    assert_eq!(effects, rounds + again, "one for each answer that was not given before");
    trial::measured(&format!(
        "{replayed} answers given again within a day of true time and none after, {again} requests carried out again; \
         the system clock would have decided {misjudged} otherwise"
    ));
}

/// No jump gives an account more requests at once than its limit, or keeps it out for longer than without one.
#[tokio::test]
async fn clock_jumps_do_not_change_rate_limits() {
    let mut longest = 0;
    for later in [NOW.plus(HOUR), NOW.minus(HOUR), NOW.plus(DAY), NOW.minus(DAY)] {
        let rate_limit = Some(RateLimit::parse("10/min").unwrap());
        let service = Service::start_with(Setup { rate_limit, ..Setup::default() }).await;
        let mut wait = async || {
            let answer = service.get("/v1/pets").await;
            answer.header("retry-after").map(|wait| wait.parse::<u64>().unwrap())
        };
        // The control: before the jump, who has used the limit up is refused.
        for _ in 0..10 {
            assert_eq!(wait().await, None);
        }
        assert_eq!(wait().await, Some(6));
        longest = longest.max(kept_out(&service, later, 6, &mut wait).await);
        let mut more = 1;
        while wait().await.is_none() {
            more += 1;
        }
        assert!(more <= 10, "{more} at once after a jump to {later}");
    }
    trial::measured(&format!("after a jump, who has used up a rate limit waits {longest} s at most"));
}

/// Whoever has tried too often may try again as soon as without a jump of the clock, or nearly.
#[tokio::test]
async fn clock_jumps_do_not_lock_users_out() {
    let mut longest = 0;
    for later in [NOW.plus(HOUR), NOW.minus(HOUR), NOW.plus(DAY), NOW.minus(DAY)] {
        let service = Service::start().await;
        let mut person = ConsoleUser::new(&service);
        let mut wait = async || {
            let answer = person.post("/sign-in", &[("email", "ada@example.com"), ("password", PASSWORD)]).await;
            answer.header("retry-after").map(|wait| wait.parse::<u64>().unwrap())
        };
        for _ in 0..ATTEMPTS {
            assert_eq!(wait().await, None);
        }
        assert_eq!(wait().await, Some(60));
        // The limit of the network's address may count as well, and is asked first: 20 s.
        longest = longest.max(kept_out(&service, later, 60 + 20, &mut wait).await);
    }
    trial::measured(&format!("after a jump, who has tried to sign in too often waits {longest} s at most"));
}

/// For how many seconds somebody is kept out from `later` on, who comes back whenever `wait` says; at most `most`.
async fn kept_out(service: &Service, later: Timestamp, most: u64, wait: &mut impl AsyncFnMut() -> Option<u64>) -> u64 {
    let mut waited = 0;
    service.clock.jump_to(later);
    while let Some(seconds) = wait().await {
        waited += seconds;
        assert!(waited <= most, "kept out for {waited} s at {later}");
        service.clock.advance(Duration::from_secs(seconds));
    }
    waited
}

/// Those that are stored, of keys that have one.
fn stored_expiries(service: &Service) -> Vec<Timestamp> {
    let database = service.database();
    let mut rows =
        database.prepare("SELECT expires_at FROM api_keys WHERE expires_at IS NOT NULL ORDER BY id").unwrap();
    let rows = rows.query_map([], |row| row.get(0)).unwrap();
    rows.map(|milliseconds| Timestamp::from_milliseconds(milliseconds.unwrap())).collect()
}

#[test]
fn built_program_follows_true_time_when_its_clock_jumps() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), FakeClock::new());
    let database = Database::folder(folder.path());
    let key = database.make_key();
    let short =
        database.petstore("key create --account ada@example.com --name short --expires-in 3s").output().unwrap();
    let short = String::from_utf8(short.stdout).unwrap().trim().to_owned();
    let service = clock.serve(&database);
    let create = || post_once(&service.store, "/v1/pets", &key, "once", r#"{"name":"Rex","categoryId":1}"#);
    assert_eq!((create().status, service.get("/v1/pets", &short).status), (201, 200));

    clock.set("+2d");
    assert_eq!(wall_time(&service, &key), 2, "the program sees the jump");
    assert!(create().is_replayed());
    assert_eq!(service.get("/v1/pets", &short).status, 200, "a key does not expire early");
    clock.set("+0");
    assert!(create().is_replayed());

    within(Duration::from_secs(10), "expiry", || service.get("/v1/pets", &short).status == 401);
    clock.set("-1d");
    assert_eq!(wall_time(&service, &key), -1);
    assert_eq!(service.get("/v1/pets", &short).status, 401, "an expired key stays expired");
    trial::measured(
        "the built program, its clock two days ahead and a day behind: 1 animal for a key, expiry by true time",
    );
}

/// Number of days by which the program's clock is ahead, according to the time of a message.
fn wall_time(service: &Server, key: &str) -> i64 {
    let created_at = service.send_message(key, "Hello").json()["createdAt"].as_str().unwrap().to_owned();
    let created_at: jiff::Timestamp = created_at.parse().unwrap();
    let ahead = created_at.duration_since(jiff::Timestamp::now());
    (ahead.as_secs_f64() / DAY.as_secs_f64()).round() as i64
}

#[test]
fn clock_before_1970_breaks_no_connection() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), FakeClock::new());
    let database = Database::folder(folder.path());
    let key = database.make_key();
    let service = clock.serve(&database);
    clock.set("@1969-06-01 00:00:00");
    let ask: [&dyn Fn() -> Response; 4] = [
        &|| service.create_pet(&key, "Rex"),
        &|| service.send_message(&key, "Hello"),
        &|| service.get("/v1/pets/1", &key),
        &|| service.get("/sign-in", &key),
    ];
    for round in 0..20 {
        let statuses = ask.map(|ask| ask().status);
        assert_eq!(statuses, [201, 202, 200, 200], "round {round}");
    }
    assert!(service.send_message(&key, "Hello").body().contains("\"createdAt\":\"1969-06-01T"));
    trial::measured("81 requests in 1969 answered");
}

#[test]
fn service_refuses_to_start_before_1970() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), FakeClock::new());
    clock.set("@1969-06-01 00:00:00");
    let mut command = clock.command(&Database::folder(folder.path()));
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said: Vec<_> = log.take_while(|line| !line.contains("\"listening\"")).collect();
    // Ends the process if it has started despite the clock.
    let _ = child.kill();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said:?}");
    assert!(said.iter().any(|line| line.contains("the system clock is set to 1969-06-01T")), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("panicked")), "{said:?}");
    trial::measured("a start in 1969 refused");
}
