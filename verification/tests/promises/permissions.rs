//! Promise 50: the role of the account and the access of the key decide what a request may do.

use std::time::Duration;

use testkit::{Database, Request, Server, trial, within};

use crate::permission_table::{CANARY, Case, Ids, Object, Outcome, Role};

/// Maximum time until every process applies a change.
pub const LIMIT: Duration = Duration::from_secs(1);

#[test]
fn every_operation_admits_exactly_the_callers_of_the_table() {
    let figures = [Database::temporary(), Database::postgres()].map(|database| check(&database));
    trial::measured(&figures.join("; "));
}

fn check(database: &Database) -> String {
    let rounds = trial::rounds(1);
    let shop = Shop::start(database);
    let [customer, staff, mut demoted, mut promoted, revoked] = [
        ("customer@example.com", Role::Customer),
        ("staff@example.com", Role::Staff),
        ("demoted@example.com", Role::Staff),
        ("promoted@example.com", Role::Customer),
        ("revoked@example.com", Role::Staff),
    ]
    .map(|(email, role)| shop.account(email, role));
    revoked.keys.iter().for_each(|(_, id)| _ = database.run(&format!("key revoke {id}")));
    shop.wait_until(|service| service.get("/v1/pets", &revoked.keys[1].0).status() == 401);
    let mut checked = 0;
    for _ in trial::counted(rounds) {
        demoted.set_role(database, Role::Customer);
        promoted.set_role(database, Role::Staff);
        shop.wait_for(&[&demoted, &promoted]);
        let callers = [&customer, &staff, &demoted, &promoted].map(|account| (account, Some(account.role)));
        let (attempts, violations) = shop.attempt(&[&callers[..], &[(&revoked, None)]].concat());
        assert!(violations.is_empty(), "{} of {attempts}: {violations:#?}", violations.len());
        checked += attempts;
        (demoted, promoted) = (promoted, demoted);
    }

    // Control: a role that is changed by hand and applied by a new process is noticed in each case that it changes.
    database.sql(&format!("UPDATE accounts SET role = 1 WHERE id = {}", customer.id));
    let shop = Shop { services: vec![database.serve()], ..shop };
    let (_, violations) = shop.attempt(&[(&customer, Some(Role::Customer))]);
    let differs = |case: &Case, reads| case.expected(Role::Customer, reads) != case.expected(Role::Staff, reads);
    let both = shop.cases.iter().flat_map(|case| [false, true].map(|reads| differs(case, reads)));
    let expected = both.filter(|differs| *differs).count();
    assert_eq!(violations.len(), expected, "{violations:#?}");
    let database = if database.is_embedded() { "sqlite" } else { "postgresql" };
    format!(
        "{database}: {checked} combinations, 0 permissions beyond the table, 0 missing; {expected} of a role changed by hand are noticed"
    )
}

/// An account with a key that may write and one that may only read, which every process has cached.
struct Account {
    id: i64,
    email: String,
    role: Role,
    /// Texts and ids.
    keys: [(String, String); 2],
}

impl Account {
    fn set_role(&mut self, database: &Database, role: Role) {
        self.role = role;
        set_role(database, &self.email, role);
    }
}

pub fn set_role(database: &Database, email: &str, role: Role) {
    database.run(&format!("account set-role {email} {}", name(role)));
}

const fn name(role: Role) -> &'static str {
    match role {
        Role::Customer => "customer",
        Role::Staff => "staff",
    }
}

/// Two processes on one database, which has an order and a message of another customer.
pub struct Shop<'d> {
    pub database: &'d Database,
    pub services: Vec<Server>,
    pub cases: Vec<Case>,
    /// A key of staff, for preparations.
    staff: String,
    pub others_key: String,
    pub others_account: i64,
}

impl<'d> Shop<'d> {
    pub fn start(database: &'d Database) -> Self {
        let staff = database.make_key();
        let others_key = database.customer("other@example.com");
        let others_account = database.sql("SELECT max(id) FROM accounts").parse().unwrap();
        let services = vec![database.serve(), database.serve()];
        assert_eq!(services[0].send_message(&others_key, CANARY).status(), 202);
        let shop = Self { database, cases: Case::all(&services[0]), services, staff, others_key, others_account };
        shop.order(&shop.others_key);
        shop
    }

    /// Waits until every process applies the roles of these accounts.
    fn wait_for(&self, accounts: &[&Account]) {
        let others = format!("/v1/store/orders/{}", self.order(&self.others_key));
        self.wait_until(|service| {
            accounts.iter().all(|account| {
                let sees_others = service.get(&others, &account.keys[1].0).status() == 200;
                sees_others == (account.role == Role::Staff)
            })
        });
    }

    /// Waits until a change applies in every process.
    pub fn wait_until(&self, is_applied: impl Fn(&Server) -> bool) {
        within(LIMIT, "applying a change", || self.services.iter().all(&is_applied));
    }

    fn account(&self, email: &str, role: Role) -> Account {
        self.database.run(&format!("account create {email} --role {}", name(role)));
        let id = self.database.sql("SELECT max(id) FROM accounts").parse().unwrap();
        let keys = ["", "--read-only"].map(|flags| {
            let key = self.database.another_key_of(email, flags);
            self.services.iter().for_each(|service| assert_eq!(service.get("/v1/pets", &key).status(), 200));
            (key, self.database.sql("SELECT max(id) FROM api_keys"))
        });
        Account { id, email: email.to_owned(), role, keys }
    }

    /// Creates an animal and returns its id.
    pub fn pet(&self) -> i64 {
        self.services[0].pet_request(&self.staff, "Rex").send_until_available().id()
    }

    /// Places an order for a new animal and returns its id.
    pub fn order(&self, key: &str) -> i64 {
        let body = format!(r#"{{"petId":{}}}"#, self.pet());
        Request::new(self.services[0].store(), "POST", "/v1/store/orders")
            .key(key)
            .json(body)
            .send_until_available()
            .id()
    }

    /// A step of an order by staff.
    pub fn step(&self, order: i64, step: &str) {
        let path = format!("/v1/store/orders/{order}/{step}");
        let response = Request::new(self.services[0].store(), "POST", &path).key(&self.staff).send_until_available();
        assert_eq!(response.status(), 200, "{response:?}");
    }

    /// Sends every case to every process with both keys of these accounts, and without a key. The keys of an account without
    /// a role have been revoked. Returns the number of requests, and each difference from the table.
    fn attempt(&self, callers: &[(&Account, Option<Role>)]) -> (usize, Vec<String>) {
        let mut attempts = self.attempts(0, None, None, &self.others_key);
        for (Account { id, keys: [(writes, _), (reads, _)], .. }, role) in callers {
            // A revoked key cannot place orders.
            let owner = if role.is_some() { writes } else { &self.others_key };
            attempts.extend(self.attempts(*id, *role, Some((writes, false)), owner));
            attempts.extend(self.attempts(*id, *role, Some((reads, true)), owner));
        }
        let is_allowed = |attempt: &Attempt| matches!(attempt.expected, Outcome::Allowed | Outcome::ShowsOthers);
        let (count, (allowed, rejected)) = (attempts.len(), attempts.into_iter().partition::<Vec<_>, _>(is_allowed));
        let before = self.state();
        let mut violations: Vec<_> = rejected.iter().filter_map(Attempt::violation).collect();
        if violations.is_empty() && self.state() != before {
            violations.push("a rejected request had an effect".to_owned());
        }
        violations.extend(allowed.iter().filter_map(Attempt::violation));
        (count, violations)
    }

    /// Prepares all cases with a key and whether it only reads. `owner` is the key that places the caller's own orders.
    fn attempts(&self, account: i64, role: Option<Role>, key: Option<(&str, bool)>, owner: &str) -> Vec<Attempt<'_>> {
        let everywhere = self.services.iter().flat_map(|service| self.cases.iter().map(move |case| (service, case)));
        let attempts = everywhere.map(|(service, case)| {
            let mut ids = Ids { account, others_account: self.others_account, pet: self.pet(), ..Ids::default() };
            if case.path.contains("{orderId}") && case.object != Object::Missing {
                let own = case.object == Object::Own;
                let order = self.order(if own { owner } else { &self.others_key });
                if case.path.ends_with("/deliver") {
                    self.step(order, "approve");
                }
                (ids.order, ids.others_order) = (order, order);
            }
            let request = case.request(service, &ids);
            let expected = role.zip(key).map(|(role, (_, only_reads))| case.expected(role, only_reads));
            Attempt {
                case,
                account,
                role,
                request: key.iter().fold(request, |request, (key, _)| request.key(key)),
                expected: expected.unwrap_or(Outcome::Unauthorized),
            }
        });
        attempts.collect()
    }

    /// Everything that a request may change.
    fn state(&self) -> String {
        let counts = ["pets", "messages", "idempotency_records"];
        let counts = counts.map(|table| format!("SELECT '{table}', count(*), 0 FROM {table}"));
        self.database.sql(&format!(
            "{} UNION ALL SELECT 'order', id, status FROM orders ORDER BY 1, 2",
            counts.join(" UNION ALL ")
        ))
    }
}

struct Attempt<'s> {
    case: &'s Case,
    account: i64,
    role: Option<Role>,
    request: Request,
    expected: Outcome,
}

impl Attempt<'_> {
    /// Sends the request. Returns the difference from the table, if there is one.
    fn violation(&self) -> Option<String> {
        let Self { case, account, role, request, expected } = self;
        let response = request.send_until_available();
        let observed = case.observed(&response, *account);
        let is_right = observed == *expected && response.status() != 409;
        (!is_right).then(|| format!("{role:?} {account}, {case:?}: {expected:?} expected, {}", response.shown()))
    }
}
