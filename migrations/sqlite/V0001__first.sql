-- What the database is: its deployment, and counters that other processes watch.
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
    created_at    INTEGER NOT NULL          -- all times are milliseconds since 1970, UTC
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
    revoked_at   INTEGER
) STRICT;

CREATE INDEX api_keys_by_account ON api_keys (account_id);

-- Ids are given out by SQLite as the greatest one plus one. No animal is ever deleted, so none is reused;
-- the check keeps them below 2^53, where every JSON reader still counts exactly.
CREATE TABLE pets (
    id          INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND 9007199254740991),
    name        TEXT NOT NULL,
    category_id INTEGER NOT NULL,
    status      INTEGER NOT NULL CHECK (status BETWEEN 0 AND 2)   -- 0 available, 1 pending, 2 sold
) STRICT;

-- Holds every column, so that a list by status reads the index alone.
CREATE INDEX pets_by_status ON pets (status, id, name, category_id);

-- An account's own messages lie side by side, in order of their ids, which begin with the time. The key is all there is
-- to look by, so that taking a message on writes in one place.
CREATE TABLE messages (
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    id         BLOB NOT NULL CHECK (length(id) = 16),     -- a UUIDv7
    message    TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (account_id, id)
) STRICT, WITHOUT ROWID;
