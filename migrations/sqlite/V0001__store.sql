-- The migrations that were applied to the database (CONTRIBUTING.md, "Add a migration").
CREATE TABLE schema_history (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;

-- The database's deployment, and counters that other processes watch.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY NOT NULL,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('keys_version', 0);

CREATE TABLE accounts (
    id            INTEGER PRIMARY KEY,
    email         TEXT NOT NULL,            -- as given
    email_folded  TEXT NOT NULL UNIQUE,     -- lower case: how addresses are compared
    password_hash TEXT,                     -- PHC string; NULL: only the command line can use the account
    role          INTEGER NOT NULL CHECK (role BETWEEN 0 AND 1),   -- 0 customer, 1 staff
    created_at    INTEGER NOT NULL,         -- all times below are milliseconds since 1970, UTC
    deleted_at    INTEGER                   -- a deleted account keeps its row, without address and password
) STRICT;

CREATE TABLE api_keys (
    id           INTEGER PRIMARY KEY,
    account_id   INTEGER NOT NULL REFERENCES accounts (id),
    name         TEXT NOT NULL,
    hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),   -- SHA-256 of the key
    hint         TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    lifetime     INTEGER,                 -- as asked for, in milliseconds; NULL: for ever
    expires_at   INTEGER,                 -- created_at + lifetime, or earlier where a successor took over
    revoked_at   INTEGER,
    read_only    INTEGER NOT NULL DEFAULT 0 CHECK (read_only IN (0, 1)),
    prefer       TEXT                     -- the failures that its requests get; only on staging
) STRICT;

CREATE INDEX api_keys_by_account ON api_keys (account_id);

-- Ids are given out by SQLite as the greatest one plus one. No animal is deleted except by a reset, so none is reused;
-- the check keeps them below 2^53, where every JSON reader still counts exactly.
CREATE TABLE pets (
    id          INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND 9007199254740991),
    name        TEXT NOT NULL,
    category_id INTEGER NOT NULL,
    status      INTEGER NOT NULL CHECK (status BETWEEN 0 AND 2)   -- 0 available, 1 pending, 2 sold
) STRICT;

-- Each holds every column, so that a list by status reads one index alone. New animals are appended to them; an index of
-- all statuses would be written in its middle.
CREATE INDEX pets_available ON pets (id, name, category_id) WHERE status = 0;
CREATE INDEX pets_pending ON pets (id, name, category_id) WHERE status = 1;
CREATE INDEX pets_sold ON pets (id, name, category_id) WHERE status = 2;

-- An account's own messages lie side by side, in order of their ids, which begin with the time. The key is all there is
-- to look by, so that taking a message on writes in one place.
CREATE TABLE messages (
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    id         BLOB NOT NULL CHECK (length(id) = 16),     -- a UUIDv7
    message    TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    sent_at    INTEGER,                     -- when a broker acknowledged it (`--relay`); NULL: queued
    PRIMARY KEY (account_id, id)
) STRICT, WITHOUT ROWID;

-- The first relay creates the index for its searches (`src/store/sqlite/outbox.rs`). Without a relay, a message is written
-- to one B-tree only.

-- Sessions of the console.
CREATE TABLE sessions (
    token_hash   BLOB PRIMARY KEY NOT NULL CHECK (length(token_hash) = 32),   -- SHA-256 of the browser's token
    account_id   INTEGER NOT NULL REFERENCES accounts (id),
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL          -- to the minute
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_account ON sessions (account_id);

-- Ids are the greatest one plus one, as those of animals. No order is deleted except by a reset.
CREATE TABLE orders (
    id         INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND 9007199254740991),
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    pet_id     INTEGER NOT NULL REFERENCES pets (id),
    status     INTEGER NOT NULL CHECK (status BETWEEN 0 AND 3),   -- 0 placed, 1 approved, 2 delivered, 3 cancelled
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL                                   -- when the status last changed
) STRICT;

-- An animal never has two orders that are not cancelled.
CREATE UNIQUE INDEX orders_of_pet ON orders (pet_id) WHERE status <> 3;

-- It holds every column, so that an account's list reads the index alone. Orders of all statuses are merged from it: an
-- index without the status would cost each new order a tenth of its time.
CREATE INDEX orders_by_status ON orders (account_id, status, id, pet_id, created_at, updated_at);

-- Staff list the orders of all accounts.
CREATE INDEX orders_of_all_by_status ON orders (status, id);

-- Responses, kept for 24 hours for requests that are repeated with the same Idempotency-Key.
CREATE TABLE idempotency_records (
    -- SHA-256 of the account, the operation's name and the key.
    key_hash    BLOB PRIMARY KEY NOT NULL CHECK (length(key_hash) = 32),
    account_id  INTEGER NOT NULL REFERENCES accounts (id),
    -- SHA-256 of the path and the body.
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    expires_at  INTEGER NOT NULL,
    -- The response.
    status      INTEGER NOT NULL,
    location    TEXT,
    body        BLOB NOT NULL
) STRICT;

-- Finds expired records, which are deleted.
CREATE INDEX idempotency_records_by_expiry ON idempotency_records (expires_at);

-- Changes and their authors (`src/domain/audit.rs`). Names are those at the time of the change. They refer to no row, so that
-- they outlive accounts.
CREATE TABLE audit (
    id             INTEGER PRIMARY KEY,
    created_at     INTEGER NOT NULL,
    action         TEXT NOT NULL,
    actor          TEXT NOT NULL,           -- the address of an account, or 'command line'
    subject        TEXT NOT NULL,
    client_address TEXT,
    request_id     TEXT
) STRICT;

-- Finds rows that are older than the retention time, which are deleted.
CREATE INDEX audit_by_time ON audit (created_at);
