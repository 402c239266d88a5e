//! Promise 32: jumps of the system clock do not change when anything expires.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use petstore::api::{Network, RateLimit};
use petstore::domain::Timestamp;
use petstore::domain::session::IDLE;
use testkit::console::{PASSWORD, form};
use testkit::{ConsoleUser, Database, Process, Random, Server, TIMEOUT, new_pet, trial, within};
use verification::FakeClock;

use crate::service::{NOW, Service, Setup};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum true time between two jumps.
const LONGEST: Duration = Duration::from_secs(4 * 60 * 60);

/// Sign-in attempts per email address: a burst of this many, then one per minute.
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

        // Ids are unique and ids of animals increase, regardless of the system clock.
        let pet = service.post("/v1/pets", r#"{"name":"Rex","categoryId":1}"#).await;
        assert_eq!(pet.status(), 201, "{}", pet.body);
        let id = pet.json()["id"].as_i64().unwrap();
        assert!(id > last, "{id} after {last}");
        last = id;
        for _ in 0..3 {
            let message = service.message(r#"{"message":"Hello"}"#).await.json();
            assert_eq!(message["createdAt"], wall.to_string());
            assert!(ids.insert(message["id"].to_string()), "{message} has the id of another one");
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
        assert_eq!(ada.is_signed_in().await, lasts, "signed in at {signed_in_at}, now {truth}");
        ended += u32::from(!lasts);
    }
    // Control: by the system clock, keys would have expired early or late.
    assert!(misjudged > 0 && accepted > 0 && refused > 0, "little was tested");
    trial::measured(&format!(
        "{rounds} jumps of an hour or a day, forward and back: {} ids unique, {accepted} uses of {} keys before their \
         expiry in true time and none of {refused} after, {ended} sessions ended; the system clock would have decided \
         {misjudged} uses otherwise",
        ids.len() + rounds as usize,
        keys.len()
    ));
}

/// Moves the system clock by an hour or a day, forward or back, but never more than two days off. Then advances time.
/// Returns the true time.
fn jump(service: &Service, truth: Timestamp, random: &mut Random) -> Timestamp {
    let by = if random.below(2) == 0 { HOUR } else { DAY };
    let wall = service.clock.now();
    let forward = if wall > truth.plus(DAY) { false } else { wall < truth.minus(DAY) || random.below(2) == 0 };
    service.clock.jump_to(if forward { wall.plus(by) } else { wall.minus(by) });
    let passing = Duration::from_millis(random.below(LONGEST.as_millis() as u64));
    service.clock.advance(passing);
    truth.plus(passing)
}

/// Signs up from a different network address each round, so that the limit per network address does not apply.
async fn sign_up(service: &Service, round: u32) -> ConsoleUser {
    let mut person = ConsoleUser::new(service);
    let email = format!("ada-{round}@example.com");
    let request = form(person.address, "/sign-up", &[("email", &email), ("password", PASSWORD)]);
    person.send(request.header("x-forwarded-for", &Ipv4Addr::from_bits(round).to_string())).await;
    assert!(person.is_signed_in().await, "round {round}");
    person
}

/// A response is replayed for a day of true time. Afterwards the request is executed again.
#[tokio::test]
async fn clock_jumps_keep_responses_for_a_day() {
    let (rounds, mut random) = (trial::rounds(40), Random::from_seed());
    let service = Service::start().await;
    let send = async |key: u32| {
        let request = service.request("POST", "/v1/pets").key(&service.key).json(new_pet(&key.to_string()));
        let response = request.header("idempotency-key", &key.to_string()).send().await;
        assert_eq!(response.status(), 201, "{}", response.body);
        response
    };
    // The stored response of each key, and its expiry.
    let mut kept: Vec<(String, Timestamp)> = Vec::new();
    let (mut truth, mut replayed, mut again, mut misjudged) = (NOW, 0, 0, 0);
    for round in 1..=rounds {
        kept.push((send(round - 1).await.body, truth.plus(DAY)));
        truth = jump(&service, truth, &mut random);
        for _ in 0..4 {
            let key = random.below(u64::from(round)) as u32;
            let (body, expiry) = &mut kept[key as usize];
            misjudged += u32::from((service.clock.now() < *expiry) != (truth < *expiry));
            let response = send(key).await;
            let is_replayed = response.is_replayed();
            assert_eq!(is_replayed, response.body == *body, "key {key}");
            assert_eq!(is_replayed, truth < *expiry, "key {key} is kept until {expiry}, now {truth}");
            replayed += u32::from(is_replayed);
            if !is_replayed {
                again += 1;
                (*body, *expiry) = (response.body, truth.plus(DAY));
            }
        }
    }
    // Control: by the system clock, records would have expired early or late.
    assert!(replayed > 0 && again > 0 && misjudged > 0, "{replayed} replayed, {again} again: little was tested");
    let effects = service.sql("SELECT count(*) FROM pets");
    assert_eq!(effects, (rounds + again).to_string(), "one for each response that was not replayed");
    trial::measured(&format!(
        "{replayed} responses replayed within a day of true time and none after, {again} requests executed again; \
         the system clock would have decided {misjudged} otherwise"
    ));
}

/// After a jump, bursts stay within the limit and no client waits longer.
#[tokio::test]
async fn clock_jumps_do_not_change_rate_limits() {
    let mut longest = Duration::ZERO;
    for later in [NOW.plus(HOUR), NOW.minus(HOUR), NOW.plus(DAY), NOW.minus(DAY)] {
        let rate_limit = Some(RateLimit::parse("10/min").unwrap());
        let service = Service::start_with(Setup { rate_limit, ..Setup::default() }).await;
        let mut wait = async || service.get("/v1/pets").await.retry_after();
        // Control: before the jump, the limit rejects the eleventh request.
        for _ in 0..10 {
            assert_eq!(wait().await, None);
        }
        assert_eq!(wait().await, Some(Duration::from_secs(6)));
        longest = longest.max(wait_after_jump(&service, later, Duration::from_secs(6), &mut wait).await);
        let mut more = 1;
        while wait().await.is_none() {
            more += 1;
        }
        assert!(more <= 10, "{more} at once after a jump to {later}");
    }
    trial::measured(&format!("after a jump, a client that has used up its rate limit waits at most {longest:?}"));
}

/// After too many attempts, a jump makes a user wait at most 20 s longer.
#[tokio::test]
async fn clock_jumps_do_not_lock_users_out() {
    let mut longest = Duration::ZERO;
    for later in [NOW.plus(HOUR), NOW.minus(HOUR), NOW.plus(DAY), NOW.minus(DAY)] {
        let service = Service::start().await;
        let mut person = ConsoleUser::new(&service);
        let fields = [("email", "ada@example.com"), ("password", PASSWORD)];
        let mut wait = async || person.post("/sign-in", &fields).await.retry_after();
        for _ in 0..ATTEMPTS {
            assert_eq!(wait().await, None);
        }
        assert_eq!(wait().await, Some(Duration::from_secs(60)));
        // The limit per network address may apply too, and is checked first: 20 s.
        longest = longest.max(wait_after_jump(&service, later, Duration::from_secs(60 + 20), &mut wait).await);
    }
    trial::measured(&format!("after a jump, a user after too many attempts to sign in waits at most {longest:?}"));
}

/// Jumps to `later`. Returns the total wait of a client that retries as told by `attempt`, which must be at most `limit`.
async fn wait_after_jump(
    service: &Service,
    later: Timestamp,
    limit: Duration,
    attempt: &mut impl AsyncFnMut() -> Option<Duration>,
) -> Duration {
    let mut waited = Duration::ZERO;
    service.clock.jump_to(later);
    while let Some(wait) = attempt().await {
        waited += wait;
        assert!(waited <= limit, "waited for {waited:?} at {later}");
        service.clock.advance(wait);
    }
    waited
}

/// The expiry of each key that has one.
fn stored_expiries(service: &Service) -> Vec<Timestamp> {
    let rows = service.sql("SELECT expires_at FROM api_keys WHERE expires_at IS NOT NULL ORDER BY id");
    rows.lines().map(|milliseconds| Timestamp::from_milliseconds(milliseconds.parse().unwrap())).collect()
}

#[test]
fn built_program_follows_true_time_when_its_clock_jumps() {
    let (database, clock) = (Database::temporary(), FakeClock::new());
    let key = database.make_key();
    let [short, long] =
        ["3s", "1h"].map(|time| database.another_key_of("ada@example.com", &format!("--expires-in {time}")));
    let service = clock.serve(&database);
    let create = || service.pet_request(&key, "Rex").header("idempotency-key", "once").send_blocking();
    assert_eq!((create().status(), service.get("/v1/pets", &long).status()), (201, 200));

    clock.set("+2d");
    assert_eq!(wall_time(&service, &key), 2, "the program sees the jump");
    assert!(create().is_replayed());
    assert_eq!(service.get("/v1/pets", &long).status(), 200, "a key does not expire early");
    clock.set("+0");
    assert!(create().is_replayed());

    within(TIMEOUT, "expiry", || service.get("/v1/pets", &short).status() == 401);
    clock.set("-1d");
    assert_eq!(wall_time(&service, &key), -1);
    assert_eq!(service.get("/v1/pets", &short).status(), 401, "an expired key stays expired");
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
fn service_refuses_to_start_before_1970() {
    let (database, clock) = (Database::temporary(), FakeClock::new());
    clock.set("@1969-06-01 00:00:00");
    let ended = Process::start(&mut clock.command(&database)).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("the system clock is set to 1969-06-01T"), "{ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
    trial::measured("a start in 1969 refused");
}
