//! Promise 50 while requests run: clients use two processes, while the command line changes the account's role, and the
//! console of the first process ends keys.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use testkit::console::{PASSWORD, code, form};
use testkit::{Database, Random, Response, Server, Stop, TIMEOUT, trial, within};

use crate::permission_table::{Case, Ids, Object, Outcome, Role};
use crate::permissions::{LIMIT, Shop, set_role};

const EMAIL: &str = "changing@example.com";

/// Clients of each process.
const CLIENTS: usize = 3;

/// Number of keys that clients choose from: two valid ones, and some that have ended.
const RECENT: usize = 4;

#[test]
fn changed_permissions_apply_within_1s_while_requests_run() {
    check(&Database::temporary());
}

#[test]
fn changed_permissions_apply_within_1s_on_postgresql() {
    check(&Database::postgres());
}

fn check(database: &Database) {
    let (rounds, mut random) = (trial::rounds(2), Random::from_seed());
    let subject = Subject::start(database);
    let seen = subject.observe(&mut random, |random| {
        for round in trial::counted(rounds) {
            subject.change_role(Role::Customer, || set_role(database, EMAIL, Role::Customer));
            subject.wait_for_replay(Outcome::Forbidden);
            random.sleep(0..1_500);
            subject.end_key(round);
            random.sleep(0..500);
            subject.change_role(Role::Staff, || set_role(database, EMAIL, Role::Staff));
            subject.wait_for_replay(Outcome::Allowed);
            random.sleep(0..1_500);
        }
    });
    let violations = subject.violations(&seen);
    assert!(violations.is_empty(), "{} of {}: {:#?}", violations.len(), seen.len(), violations[0]);
    let slowest = seen.iter().filter_map(|seen| subject.lag(seen)).max().unwrap_or_default();
    let replays =
        [Outcome::Allowed, Outcome::Forbidden].map(|outcome| subject.replays(outcome).load(Ordering::Relaxed));

    // Control: a process that is not notified of a change continues to grant the old permissions, which is noticed.
    within(TIMEOUT, "noticing outdated permissions", || {
        // On a busy machine, all processes may have read the changes too late, and have forgotten the role.
        subject.change_role(Role::Staff, || set_role(database, EMAIL, Role::Staff));
        let unnoticed = subject.observe(&mut random, |_| {
            let begun = Instant::now();
            database.sql(&format!("UPDATE accounts SET role = 0 WHERE email = '{EMAIL}'"));
            let acknowledged = Instant::now();
            let applied = acknowledged + LIMIT;
            subject.roles.lock().unwrap().push(Change { begun, acknowledged, applied, to: Role::Customer });
            thread::sleep(LIMIT);
            // Until a request tells the roles apart.
            let telling = || subject.telling.load(Ordering::Relaxed);
            let before = telling() + CLIENTS * subject.shop.services.len();
            within(TIMEOUT, "requests", || telling() > before);
        });
        !subject.violations(&unnoticed).is_empty()
    });
    trial::measured(&format!(
        "{}: {} changes of the role and {rounds} ended keys during {} requests, applied within {} ms, 0 permissions beyond \
         the table; {} replays for staff, {} forbidden after the demotion; a change without a notification is noticed",
        if database.is_embedded() { "sqlite" } else { "postgresql" },
        2 * rounds,
        seen.len(),
        slowest.as_millis() + 1,
        replays[0],
        replays[1],
    ));
}

/// An account whose permissions change.
struct Subject<'d> {
    shop: Shop<'d>,
    ids: Ids,
    cookie: String,
    roles: Mutex<Vec<Change>>,
    keys: RwLock<Vec<Key>>,
    /// Number of requests with a key whose outcome depends on the role.
    telling: AtomicUsize,
    /// Number of replays with a key of all rights that were allowed, and that were forbidden.
    replays: [AtomicUsize; 2],
}

/// A role that applied until the next change.
#[derive(Debug)]
struct Change {
    begun: Instant,
    acknowledged: Instant,
    /// From then on, every process must apply it.
    applied: Instant,
    to: Role,
}

struct Key {
    text: String,
    id: String,
    only_reads: bool,
    /// When its end began, was acknowledged, and must apply in every process.
    ended: Option<[Instant; 3]>,
}

/// A response that a client observed.
#[derive(Debug)]
struct Seen<'s> {
    sent: Instant,
    answered: Instant,
    process: usize,
    case: &'s Case,
    /// Index of the key. `None` for a form of the console.
    key: Option<usize>,
    only_reads: bool,
    outcome: Outcome,
}

impl<'d> Subject<'d> {
    /// Creates the account as staff. It has approved an order of its own with the idempotency key that clients replay.
    fn start(database: &'d Database) -> Self {
        let shop = Shop::start(database);
        let signed_up = form(shop.services[0].store(), "/sign-up", &[("email", EMAIL), ("password", PASSWORD)]);
        let cookie = signed_up.send_blocking().cookie().expect("a session");
        set_role(database, EMAIL, Role::Staff);
        let account = database.sql("SELECT max(id) FROM accounts").parse().unwrap();
        let keys = ["", "--read-only"].map(|flags| Key::create(database, flags));
        let [pet, order, others_order] = [shop.pet(), shop.order(&keys[0].text), shop.order(&shop.others_key)];
        shop.step(others_order, "cancel");
        let ids = Ids { pet, account, order, others_account: shop.others_account, others_order };
        let subject = Self {
            shop,
            ids,
            cookie,
            roles: Mutex::default(),
            keys: RwLock::new(keys.into()),
            telling: AtomicUsize::new(0),
            replays: Default::default(),
        };
        subject.wait_for_role(Role::Staff);
        let now = Instant::now();
        let begin = Change { begun: now, acknowledged: now, applied: now, to: Role::Staff };
        subject.roles.lock().unwrap().push(begin);
        assert_eq!(subject.send(0, subject.replay(), Some(0)).status(), 200);
        subject
    }

    /// Returns the approval of the account's own order, which is a replay from the second time on.
    fn replay(&self) -> &Case {
        self.shop.cases.iter().find(|case| is_replay(case)).unwrap()
    }

    fn replays(&self, outcome: Outcome) -> &AtomicUsize {
        &self.replays[usize::from(outcome == Outcome::Forbidden)]
    }

    fn wait_for_replay(&self, outcome: Outcome) {
        let count = || self.replays(outcome).load(Ordering::Relaxed);
        let before = count();
        within(TIMEOUT, "a replay", || count() > before);
    }

    /// Returns what clients of both processes observe while `work` runs, and afterwards until its last change must apply.
    fn observe<'s>(&'s self, random: &mut Random, work: impl FnOnce(&mut Random)) -> Vec<Seen<'s>> {
        let stop = Stop::new();
        thread::scope(|scope| {
            let _stop = stop.on_drop();
            let clients: Vec<_> = (0..CLIENTS * self.shop.services.len())
                .map(|client| {
                    let (stop, mut random) = (&stop, random.another());
                    scope.spawn(move || self.work(client % self.shop.services.len(), stop, &mut random))
                })
                .collect();
            thread::sleep(LIMIT);
            work(random);
            thread::sleep(LIMIT + LIMIT / 2);
            stop.request();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        })
    }

    fn work(&self, process: usize, stop: &Stop, random: &mut Random) -> Vec<Seen<'_>> {
        let mut all = Vec::new();
        while !stop.is_requested() {
            random.sleep(0..10);
            let case = match random.below(8) {
                0 => self.replay(),
                _ => &self.shop.cases[random.index(self.shop.cases.len())],
            };
            let is_form = case.is_approval() && case.object == Object::Missing && random.below(2) == 0;
            let (key, only_reads, is_valid) = {
                let keys = self.keys.read().unwrap();
                let key = keys.len() - 1 - random.index(keys.len().min(RECENT));
                if is_form {
                    (None, false, false)
                } else {
                    (Some(key), keys[key].only_reads, keys[key].ended.is_none())
                }
            };
            let sent = Instant::now();
            let response = self.send(process, case, key);
            let answered = Instant::now();
            let outcome = match (key, response.status()) {
                (None, 403) => Outcome::Forbidden,
                (None, 404) => Outcome::NotFound,
                _ => case.observed(&response, self.ids.account),
            };
            // One with a key that has ended tells nothing.
            if is_valid && case.expected(Role::Customer, only_reads) != case.expected(Role::Staff, only_reads) {
                self.telling.fetch_add(1, Ordering::Relaxed);
            }
            assert!(!is_replay(case) || outcome != Outcome::Allowed || response.is_replayed(), "{response:?}");
            if is_replay(case) && !only_reads && matches!(outcome, Outcome::Allowed | Outcome::Forbidden) {
                self.replays(outcome).fetch_add(1, Ordering::Relaxed);
            }
            all.push(Seen { sent, answered, process, case, key, only_reads, outcome });
        }
        all
    }

    /// Sends a case with a key, or as a form of the console. The approval of the account's own order is a replay.
    fn send(&self, process: usize, case: &Case, key: Option<usize>) -> Response {
        let service = &self.shop.services[process];
        let Some(key) = key else { return self.form(process, "/orders/999999999/approve", &[]) };
        let mut request = case.request(service, &self.ids).key(&self.keys.read().unwrap()[key].text.clone());
        if is_replay(case) {
            request = request.header("idempotency-key", "once");
        }
        request.send_until_available()
    }

    fn form(&self, process: usize, path: &str, fields: &[(&str, &str)]) -> Response {
        form(self.shop.services[process].store(), path, fields).header("cookie", &self.cookie).send_until_available()
    }

    fn change_role(&self, to: Role, change: impl FnOnce()) {
        let begun = Instant::now();
        // Requests that see the role while it changes are judged afterwards.
        change();
        let acknowledged = Instant::now();
        let applied = applied(acknowledged, || self.wait_for_role(to));
        self.roles.lock().unwrap().push(Change { begun, acknowledged, applied, to });
    }

    /// Waits until every process applies a role.
    fn wait_for_role(&self, role: Role) {
        let path = format!("/v1/store/orders/{}", self.ids.others_order);
        // With every key, because a process looks up those that it has not used yet, and takes the new role with them.
        let keys = self.keys.read().unwrap();
        let valid: Vec<_> = keys.iter().filter(|key| key.ended.is_none()).map(|key| key.text.clone()).collect();
        drop(keys);
        let is_applied =
            |service: &Server, key: &str| (service.get(&path, key).status() == 200) == (role == Role::Staff);
        self.shop.wait_until(|service| valid.iter().all(|key| is_applied(service, key)));
    }

    /// Rotates or revokes a valid key in the console of the first process.
    fn end_key(&self, round: u32) {
        let (only_reads, is_rotation) = (round % 2 == 1, round % 4 < 2);
        let (index, id, newest) = {
            let keys = self.keys.read().unwrap();
            let index = keys.iter().rposition(|key| key.only_reads == only_reads).unwrap();
            (index, keys[index].id.clone(), keys.last().unwrap().id.clone())
        };
        let fields = &[("overlap", "0s"), ("newest", &newest)];
        let (step, fields) = if is_rotation { ("rotate", &fields[..]) } else { ("revoke", &[][..]) };
        let begun = Instant::now();
        let response = self.form(0, &format!("/keys/{id}/{step}"), fields);
        let acknowledged = Instant::now();
        let applied = applied(acknowledged, || {
            let key = self.keys.read().unwrap()[index].text.clone();
            self.shop.wait_until(|service| service.get("/v1/pets", &key).status() == 401);
        });
        let ended = Some([begun, acknowledged, applied]);
        let mut successor = match response.status() {
            200 => Key::newest(self.shop.database, code(&response.body, "key")),
            303 => Key::create(self.shop.database, if only_reads { "--read-only" } else { "" }),
            _ => panic!("{response:?}"),
        };
        successor.only_reads = only_reads;
        let mut keys = self.keys.write().unwrap();
        keys[index].ended = ended;
        keys.push(successor);
    }

    fn violations<'s>(&self, seen: &'s [Seen<'s>]) -> Vec<&'s Seen<'s>> {
        seen.iter().filter(|seen| !self.is_explained(seen, false)).collect()
    }

    /// Returns whether the table explains the response by a role and a key that may have been valid between the request and the
    /// response: until a change applies, or was acknowledged if `at_once`, as in the process that ends a key.
    fn is_explained(&self, seen: &Seen<'_>, at_once: bool) -> bool {
        if let Some(key) = seen.key {
            let ended = self.keys.read().unwrap()[key].ended;
            if seen.outcome == Outcome::Unauthorized {
                return ended.is_some_and(|[begun, ..]| begun <= seen.answered);
            }
            let last = |[_, acknowledged, applied]: [Instant; 3]| {
                if at_once || seen.process == 0 { acknowledged } else { applied }
            };
            if ended.is_some_and(|ended| seen.sent > last(ended)) {
                return false;
            }
        }
        let roles = self.roles.lock().unwrap();
        roles.iter().enumerate().any(|(number, role)| {
            let applied = role.begun <= seen.answered
                && roles
                    .get(number + 1)
                    .is_none_or(|next| seen.sent <= if at_once { next.acknowledged } else { next.applied });
            applied && seen.case.expected(role.to, seen.only_reads) == seen.outcome
        })
    }

    /// Returns the time since the last acknowledged change, if a response does not follow it yet.
    fn lag(&self, seen: &Seen<'_>) -> Option<Duration> {
        let roles = self.roles.lock().unwrap();
        let keys = self.keys.read().unwrap();
        let ends = keys.iter().filter_map(|key| Some(key.ended?[1]));
        let changes = roles.iter().map(|role| role.acknowledged).chain(ends);
        let lag = changes.filter(|change| *change <= seen.sent).map(|change| seen.sent - change).min();
        drop((roles, keys));
        lag.filter(|_| !self.is_explained(seen, true))
    }
}

fn is_replay(case: &Case) -> bool {
    case.is_approval() && case.object == Object::Own
}

/// Returns when a change must apply in every process: in a full run [`LIMIT`] later, otherwise after `wait`.
fn applied(acknowledged: Instant, wait: impl FnOnce()) -> Instant {
    if trial::is_full() {
        return acknowledged + LIMIT;
    }
    wait();
    Instant::now()
}

impl Key {
    fn create(database: &Database, flags: &str) -> Self {
        Self { only_reads: !flags.is_empty(), ..Self::newest(database, database.another_key_of(EMAIL, flags)) }
    }

    /// The key that was created last.
    fn newest(database: &Database, text: String) -> Self {
        Self { text, id: database.sql("SELECT max(id) FROM api_keys"), only_reads: false, ended: None }
    }
}
