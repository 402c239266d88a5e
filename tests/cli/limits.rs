//! docs/limits.md has the bounds that the code enforces.

use std::path::Path;

use testkit::{Folder, Signal, raw};

const PAGE: &str = include_str!("../../docs/limits.md");

/// Each row of the page with its limit, and the file and text in `src/` that set it. A limit that changes needs both. Hyper's
/// default for headers is measured by `request_has_at_most_100_headers`.
const LIMITS: &str = r#"
    request line and headers | 32 KiB → 431 | bounded-http/connection.rs | HEAD_BYTES: usize = 32 * 1024;
    headers | 100 → 431 | bounded-http/connection.rs | http1::Builder::new()
    body | 64 KiB → 413 | api/input/query_and_body.rs | MAX_BODY: usize = 64 * 1024;
    body with its chunked coding | 1 MiB → 400 | bounded-http/limits.rs | body: 1 << 20,
    fields of a form | 128 → ignored | console/form/submission.rs | FIELDS: usize = 128;
    form of the console | 128 KiB → 413 | console/form/submission.rs | SIZE: usize = 128 * 1024;
    items per page (`limit`) | 100, by default 20 | domain/page.rs | MAX: u8 = 100;
    texts on a page of messages | 256 KiB → the page ends | store/messages/mod.rs | PAGE_BYTES: usize = 256 * 1024;
    animal's name | 255 characters | domain/pet.rs | PetName = Text<255, false>;
    message | 10,000 characters | domain/message.rs | MessageText = Text<10_000, true>;
    e-mail address | 254 characters | domain/account.rs | .count() > 254
    name of an API key | 100 characters | domain/api_key.rs | KeyName = Text<100, false>;
    `Idempotency-Key` | 255 characters | domain/idempotency.rs | MAX_CHARACTERS: usize = 255;
    `X-Request-Id` | 128 characters → replaced by a new one | api/response.rs | (1..=128)
    `Prefer` stored with a key | 255 bytes | api/prefer/preferences.rs | LENGTH: usize = 255;
    requests per account | `rate-limit`, by default none → 429 | config/mod.rs | rate_limit: Option<RateLimit>
    headers, from their first byte | 10 s → 408 | bounded-http/limits.rs | head: Duration::from_secs(10),
    request, from its first byte | 30 s → 408 | bounded-http/limits.rs | request: Duration::from_secs(30),
    response, per 64 KiB that the client reads | 30 s → closed | bounded-http/limits.rs | answer: Duration::from_secs(30),
    idle connection | 75 s → closed | bounded-http/limits.rs | idle: Duration::from_secs(75),
    TLS handshake | 10 s → closed | bounded-http/connection.rs | timeout(self.limits.head, secure(
    write on SQLite | 10 s → 503 | sqlite-group-commit/options.rs | write_timeout: Duration::from_secs(10),
    wait for another program that writes to SQLite | 5 s → 503 |
        sqlite-group-commit/options.rs | busy_timeout: Duration::from_secs(5),
    operation on PostgreSQL | `database-timeout`, by default 1.8 s → 503 |
        postgres-group-commit/connect/limits.rs | DEFAULT_TIMEOUT: Duration = Duration::from_millis(1_800);
    stored response of an `Idempotency-Key` | 24 h |
        domain/idempotency.rs | RETENTION: Duration = Duration::from_hours(24);
    unused session of the console | 2 h | domain/session.rs | IDLE: Duration = Duration::from_hours(2);
    session of the console | 12 h | domain/session.rs | ABSOLUTE: Duration = Duration::from_hours(12);
    revoked key on SQLite, and on PostgreSQL if a notification is lost | 250 ms |
        api/admission/keys.rs | WATCH: Duration = Duration::from_millis(250);
    file read at the start | 5 s → error |
        net/regular_file.rs | START_TIMEOUT: Duration = Duration::from_secs(5);
    database in `config check` | 10 s → error | cli/about/config.rs | TIMEOUT: Duration = Duration::from_secs(10);
    requests in flight at a stop | 30 s (`ephemeral`: 1 s), after `drain-delay` → closed |
        bounded-http/limits.rs | drain: Duration::from_secs(30),
    connections of clients | `max-connections`, by default 65,536 file descriptors less a reserve → 503, with TLS closed |
        bounded-http/limits.rs | .min(65_536);
    connections of the operations listener | 16 more → 503 | bounded-http/lib.rs | OPERATOR_CONNECTIONS: usize = 16;
    rejected connections per listener and second | 1,500 | bounded-http/load_shedding.rs | REJECTIONS_PER_SECOND: u32 = 1_500;
    unsent response of a connection, in the kernel | 128 KiB | bounded-http/lib.rs | UNSENT_BYTES: u32 = 128 * 1024;
    waiting writes, on PostgreSQL of each kind | 4,096 → 503 | sqlite-group-commit/options.rs | queue: 4_096,
    waiting reads on PostgreSQL | 4,096 → 503 | postgres-group-commit/connect/options.rs | queue: 4_096,
    write-ahead log of SQLite | 963 MiB before a batch → writes get 503 | sqlite-group-commit/options.rs | wal_pages: 245_000,
    write-ahead log during a backup | 512 MiB → the backup fails |
        sqlite-group-commit/backup.rs | LONGEST_LOG: u64 = 512 << 20;
    waiting log lines | 4 MiB → dropped | telemetry/log/stderr.rs | QUEUE_BYTES: usize = 4 * 1024 * 1024;
    cached API keys | 100,000 | api/admission/keys.rs | CACHED: usize = 100_000;
    cached pages on SQLite | 8 MiB | api/cache/pages.rs | CAPACITY: u64 = 8 << 20;
    cache of SQLite for writes | 8 MiB | sqlite-group-commit/open.rs | "cache_size", -8_192
    cache of each reader of SQLite, one more than cores | 16 MiB | sqlite-group-commit/readers.rs | "cache_size", -16_384
    listed requests of an account | 100, of inactive keys 20 | api/recorder/recent.rs | REQUESTS: usize = 100;
    memory of listed requests | 1 MiB per account | api/recorder/recent.rs | OF_ACCOUNT: usize = 1024 * 1024;
    memory of all listed requests | 16 MiB | api/recorder/recent.rs | OF_ALL: usize = 16 * 1024 * 1024;
    keys whose simulated requests are counted | 10,000 | api/prefer/preferences.rs | COUNTERS: usize = 10_000;
    attempts per account, or per session | 10, then one a minute → 429 |
        console/session/throttle.rs | PER_ACCOUNT: TokenBucket = TokenBucket { capacity: 10, refill: 60_000 };
    attempts per network address or IPv6 /64 | 30, then one every 20 s → 429 |
        console/session/throttle.rs | PER_ADDRESS: TokenBucket = TokenBucket { capacity: 30, refill: 20_000 };
    remembered addresses, accounts and sessions | 20,000 | console/session/throttle.rs | REMEMBERED: usize = 20_000;
    new keys of an account in the console | 60, then one every 10 s → 429 |
        console/session/throttle.rs | NEW_KEYS: TokenBucket = TokenBucket { capacity: 60, refill: 10_000 };
    hashes that wait or run | 32; as many as end in 10 s; 256 → 503 | console/session/password_hasher.rs | LONGEST_WAIT: Duration = Duration::from_secs(10);
    requests to a web server at once | 16 | relay/relaying/turn.rs | AT_ONCE: usize = 16;
    requests with messages of one account at once, while others have messages | 8; 1 after a failure |
        relay/relaying/turn.rs | AT_ONCE_OF_ACCOUNT: usize = AT_ONCE / 2;
    response of a web server that is read | 64 KiB of head, 8 KiB of body → the connection is closed |
        net/http_client.rs | MAX_HEAD: u64 = 64 << 10;
    response of a web server | 10 s → counts as a failure |
        relay/endpoint.rs | TIMEOUT: Duration = Duration::from_secs(10);
    pause of an account | 5 min |
        relay/delays.rs | PAUSE: Range = (Duration::from_secs(2), Duration::from_mins(5));
    pause of a web server | 1 s | relay/delays.rs | BRAKE: Duration = Duration::from_secs(1);
    pause that it asks for (`Retry-After`) | 1 h |
        relay/delays.rs | DEMANDED: Range = (Duration::from_secs(1), Duration::from_hours(1));
    delay of a rejected message | 1 h |
        relay/delays.rs | DELAY: Range = (Duration::from_mins(2), Duration::from_hours(1));
    delayed messages | 4,096 → others are tried again sooner | relay/delays.rs | CAPACITY: usize = 4_096;
    delayed messages of one account | 256 → the account is paused for 1 s to 2 s |
        relay/delays.rs | ACCOUNT_CAPACITY: usize = 256;
    relay that hangs or is cut off (PostgreSQL) | 30 s → another process relays |
        store/messages/postgres_lease.rs | SET idle_session_timeout = '30s'
"#;

#[test]
fn limits_page_has_the_bounds_of_the_code() {
    let rows: Vec<_> = PAGE.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | ")).collect();
    let rows: Vec<_> = rows
        .into_iter()
        .filter(|(what, _)| !matches!(*what, "what" | "---"))
        .map(|(what, rest)| (what, rest.trim_end_matches(" |")))
        .collect();
    let limits = LIMITS.trim().replace("|\n        ", "| ");
    let limits: Vec<Vec<_>> = limits.lines().map(|row| row.trim_start().splitn(4, " | ").collect()).collect();
    assert_eq!(rows, limits.iter().map(|row| (row[0], row[1])).collect::<Vec<_>>());
    for row in limits {
        let [what, _, file, text] = row[..] else { panic!("{row:?}") };
        let in_crate = ["bounded-http", "postgres-group-commit", "sqlite-group-commit"]
            .iter()
            .find_map(|name| Some((name, file.strip_prefix(name)?)));
        let file = in_crate.map_or(format!("src/{file}"), |(name, file)| format!("crates/{name}/src{file}"));
        let code = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&file)).unwrap();
        assert!(code.contains(text), "{what}: {file} has no `{text}`");
    }
}

#[tokio::test]
async fn request_has_at_most_100_headers() {
    let (_folder, server) = Folder::serving("quickstart");
    for (headers, status) in [(100, "401"), (101, "431")] {
        let others: String = (2..headers).map(|number| format!("x-{number}: a\r\n")).collect();
        let request = format!("GET /v1/pets HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{others}\r\n");
        let answer = raw(server.store(), request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}: {answer}");
    }
    assert_eq!(server.end_by(Signal::TERM).code, Some(0));
}
