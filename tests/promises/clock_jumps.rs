//! Promise 32: a clock that jumps prolongs nothing, and confuses nothing.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use petstore::config::{Network, RateLimit};
use petstore::domain::Timestamp;
use petstore::domain::session::{ABSOLUTE, IDLE};

use crate::person::{PASSWORD, Person, with_form};
use crate::support::{NOW, Service, Setup};
use crate::trial::{self, Random};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How far in the future a session may lie, for clocks that differ.
const SKEW: Duration = Duration::from_secs(60);

/// Sign-in attempts of one address of mail: so many at once, and then one a minute.
const ATTEMPTS: usize = 10;

#[tokio::test]
async fn a_clock_that_jumps_prolongs_nothing() {
    let (rounds, mut random) = (trial::rounds(12), Random::from_seed());
    let trusted_proxies = vec![Network::parse("127.0.0.1").unwrap()];
    let service = Service::start_with(Setup { trusted_proxies, ..Setup::default() }).await;
    let mut keys = Vec::new();
    for after in [HOUR / 2, HOUR, HOUR * 12, DAY, DAY * 2] {
        let expiry = NOW.plus(after);
        keys.push((expiry, service.another_key(Some(expiry)).await.1));
    }
    let (mut ids, mut last, mut now) = (HashSet::new(), 0, NOW);
    let (mut accepted, mut ended, mut prolonged_by_age_alone) = (0, 0, 0);
    for round in 1..=rounds {
        let signed_in_at = now;
        let mut ada = sign_in(&service, round).await;
        now = jump(now, &mut random);
        service.clock.set(now);

        // Ids are unique, and those of animals grow, whatever the time is said to be.
        let pet = service.post("/v1/pets", r#"{"name":"Rex","categoryId":1}"#).await;
        assert_eq!(pet.status(), 201, "{}", pet.body);
        let id = pet.json()["id"].as_i64().unwrap();
        assert!(id > last, "{id} after {last}");
        last = id;
        for _ in 0..3 {
            let message = service.message(r#"{"message":"Hello"}"#).await.json();
            assert_eq!(message["createdAt"], now.to_string());
            assert!(ids.insert(message["id"].to_string()), "{message} has an id that was given before");
        }

        // A key works until its expiry and not from then on; the expiry stays what it was.
        for (expiry, key) in &keys {
            let status = service.request("GET", "/v1/pets").key(key).send().await.status();
            assert_eq!(status, if now < *expiry { 200 } else { 401 }, "at {now}, with a key until {expiry}");
            accepted += u32::from(status == 200);
        }
        assert_eq!(expiries(&service), keys.iter().map(|(expiry, _)| *expiry).collect::<Vec<_>>());

        // A session lasts no longer than it would have: where the clock was set back, it has ended.
        let lasts = signed_in_at <= now.plus(SKEW) && now < signed_in_at.plus(IDLE);
        assert_eq!(ada.is_signed_in().await, lasts, "signed in at {signed_in_at}, and it is {now}");
        ended += u32::from(!lasts);
        // The control: by its age alone it would have lasted.
        let by_age = now < signed_in_at.plus(ABSOLUTE) && now < signed_in_at.plus(IDLE);
        prolonged_by_age_alone += u32::from(by_age && !lasts);
    }
    assert!(prolonged_by_age_alone > 0, "no jump would have prolonged anything: the test has tested little");
    trial::measured(&format!(
        "{rounds} jumps of an hour or a day, forth and back: {} ids unique, {accepted} uses of {} keys before their \
         expiry and none after, {ended} sessions ended; by age alone \
         {prolonged_by_age_alone} sessions would have been prolonged",
        ids.len() + rounds as usize,
        keys.len()
    ));
}

/// Forth or back, without going far from where it began: the keys expire there.
fn jump(now: Timestamp, random: &mut Random) -> Timestamp {
    let by = if random.below(2) == 0 { HOUR } else { DAY };
    let forth = if now > NOW.plus(DAY) { false } else { now < NOW.minus(DAY) || random.below(2) == 0 };
    if forth { now.plus(by) } else { now.minus(by) }
}

/// Signs up and in, each time from another address of the network, so that their limit does not count.
async fn sign_in(service: &Service, round: u32) -> Person {
    let mut person = Person::new(service);
    let email = format!("ada-{round}@example.com");
    for path in ["/sign-up", "/sign-in"] {
        let request = person.request("POST", path).header("origin", &format!("http://{}", person.address));
        let request = request.header("x-forwarded-for", &Ipv4Addr::from_bits(round).to_string());
        person.send(with_form(request, &[("email", &email), ("password", PASSWORD)])).await;
    }
    assert!(person.is_signed_in().await, "round {round}");
    person
}

/// An answer is given again for a day by the clock, and then what is asked is done anew.
#[tokio::test]
async fn a_clock_that_jumps_keeps_answers_for_their_day() {
    let (rounds, mut random) = (trial::rounds(40), Random::from_seed());
    let service = Service::start().await;
    let ask = async |key: u32| {
        let request = service.request("POST", "/v1/pets").key(&service.key);
        let request = request.header("idempotency-key", &key.to_string());
        let answer = request.json(format!(r#"{{"name":"{key}","categoryId":1}}"#)).send().await;
        assert_eq!(answer.status(), 201, "{}", answer.body);
        answer
    };
    // What each key was answered, until when that is kept, and the latest time that it was then said to be.
    let mut kept: Vec<(String, Timestamp, Timestamp)> = Vec::new();
    let (mut now, mut replayed, mut anew) = (NOW, 0, 0);
    for round in 1..=rounds {
        kept.push((ask(round - 1).await.body, now.plus(DAY), now));
        now = jump(now, &mut random);
        service.clock.set(now);
        kept.iter_mut().for_each(|(_, _, latest)| *latest = now.max(*latest));
        for _ in 0..4 {
            let key = random.below(u64::from(round)) as u32;
            let (body, expiry, latest) = &mut kept[key as usize];
            let answer = ask(key).await;
            let is_replayed = answer.header("idempotent-replayed").is_some();
            assert_eq!(is_replayed, answer.body == *body, "key {key}");
            assert!(!is_replayed || now < *expiry, "key {key} is kept until {expiry}, and it is {now}");
            // What has expired may have been deleted before the clock was set back.
            assert!(is_replayed || *latest >= *expiry, "key {key} is kept until {expiry}, and it is {now}");
            replayed += u32::from(is_replayed);
            if !is_replayed {
                anew += 1;
                (*body, *expiry, *latest) = (answer.body, now.plus(DAY), now);
            }
        }
    }
    assert!(replayed > 0 && anew > 0, "{replayed} replayed, {anew} anew: the test has tested little");
    let effects: u32 = service.database().query_row("SELECT count(*) FROM pets", [], |row| row.get(0)).unwrap();
    assert_eq!(effects, rounds + anew, "one for each answer that was not given before");
    trial::measured(&format!("{replayed} answers given again before their expiry and none after, {anew} done anew"));
}

/// No jump gives an account more requests at once than its limit, or keeps it out for longer than without one.
#[tokio::test]
async fn a_clock_that_jumps_leaves_rate_limits_as_they_are() {
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
async fn a_clock_that_jumps_keeps_nobody_out() {
    let mut longest = 0;
    for later in [NOW.plus(HOUR), NOW.minus(HOUR), NOW.plus(DAY), NOW.minus(DAY)] {
        let service = Service::start().await;
        let mut person = Person::new(&service);
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
    service.clock.set(later);
    while let Some(seconds) = wait().await {
        waited += seconds;
        assert!(waited <= most, "kept out for {waited} s at {later}");
        service.clock.set(later.plus(Duration::from_secs(waited)));
    }
    waited
}

/// Those that are stored, of keys that have one.
fn expiries(service: &Service) -> Vec<Timestamp> {
    let database = service.database();
    let mut rows =
        database.prepare("SELECT expires_at FROM api_keys WHERE expires_at IS NOT NULL ORDER BY id").unwrap();
    let rows = rows.query_map([], |row| row.get(0)).unwrap();
    rows.map(|milliseconds| Timestamp::from_milliseconds(milliseconds.unwrap())).collect()
}
